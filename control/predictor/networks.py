"""The thesis's four networks: a dense branch for static features and a BiLSTM branch for each kind of series.

For: the architecture, and its parameters as arrays. Not for: training (training.py). The branches of a local
run are computed once per job, because all rows of a job share its local run. Source: chapter 4 (cloud) of the
doctoral thesis: branches of series (CPU, memory, network), each of master and workers, then concatenated
dense layers; ours has one branch more, for the order of the model's layers. Softplus where a ReLU would die;
batch norm in the static branch of the time model and of the time classifier, and everywhere in the cost
classifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from control.jobs import Objective
from control.predictor.features import SERIES, SERIES_COLUMNS
from twinbed import ScenarioError

_BRANCHES = {
    f"{kind}_series": sum((SERIES[group] for group in groups), ())
    for kind, groups in {
        "cpu": ("master's CPU", "workers' CPU"),
        "memory": ("master's memory", "workers' memory"),
        "network": ("master's network", "workers' network"),
        "layer": ("order of layers",),
    }.items()
}
"""Columns of a job's series that each recurrent branch reads."""
_STATIC, _RECURRENT, _DENSE = 128, 16, 64


class Kind(StrEnum):
    """The networks by name."""

    COST = "cost"
    TIME = "time"
    TOP_COST = "top-cost"
    TOP_TIME = "top-time"

    @property
    def by(self) -> Objective:
        """The quantity that the network predicts or ranks by."""
        return Objective.COST if self in (Kind.COST, Kind.TOP_COST) else Objective.TIME

    @property
    def classifies(self) -> bool:
        """Whether the network predicts the probability that a configuration is one of the best, instead of a
        value."""
        return self in (Kind.TOP_COST, Kind.TOP_TIME)


class Norm(StrEnum):
    """Places of batch norm in a network."""

    NONE = "none"
    STATIC = "static"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the thesis trains a kind. rate: Adam's learning rate; norm: where there is batch norm."""

    rate: float
    norm: Norm


RECIPES: Mapping[Kind, Recipe] = {
    Kind.COST: Recipe(1e-4, Norm.NONE),
    Kind.TIME: Recipe(8e-4, Norm.STATIC),
    Kind.TOP_COST: Recipe(1e-4, Norm.ALL),
    Kind.TOP_TIME: Recipe(1e-4, Norm.STATIC),
}


class Network(nn.Module):
    """A network of one kind. statics: number of static columns."""

    def __init__(self, statics: int, kind: Kind) -> None:
        super().__init__()
        norm = RECIPES[kind].norm
        self.kind = kind
        self.static = _dense(statics, (_STATIC, _DENSE), batch_norm=norm is not Norm.NONE)
        self.branches = nn.ModuleDict(
            {
                name: nn.LSTM(len(columns), _RECURRENT, batch_first=True, bidirectional=True)
                for name, columns in _BRANCHES.items()
            }
        )
        self._places = _places(self.branches)
        joined = _DENSE + 2 * _RECURRENT * len(_BRANCHES)
        self.head = nn.Sequential(
            _dense(joined, (_STATIC, _DENSE), batch_norm=norm is Norm.ALL), nn.Linear(_DENSE, 1)
        )

    def forward(self, static: Tensor, series: Tensor, job: Tensor) -> Tensor:
        """Return times or costs in units of the training rows' mean, or logits, [n].

        static: [n, f]; series: of the J jobs, [J, points, c]; job: position of each row's job, [n].
        """
        joined = torch.cat((self.static(static), self._last_states(series)[job]), dim=1)
        out: Tensor = self.head(joined).squeeze(-1)
        return out if self.kind.classifies else nn.functional.softplus(out)

    def _last_states(self, series: Tensor) -> Tensor:
        """Return the last states of all branches, [J, 2 · _RECURRENT · branches], each in both directions.

        One LSTM with the parameters of all branches, and 0 between them, takes half the time of four: with so
        small matrices the calls cost more than the arithmetic.
        """
        place, shapes = self._places
        sizes = [prod(shape) for shape in shapes]
        own = torch.cat([parameter.flatten() for parameter in self.branches.parameters()])
        whole = torch.split_with_sizes(own.new_zeros(sum(sizes)).index_copy(0, place, own), sizes)
        weights = [part.view(shape) for part, shape in zip(whole, shapes, strict=True)]
        start = own.new_zeros(2, len(series), _RECURRENT * len(_BRANCHES))
        _, last, _ = torch.lstm(series, (start, start), weights, True, 1, 0.0, self.training, True, True)
        by_branch: Tensor = last.reshape(2, len(series), len(_BRANCHES), _RECURRENT)
        return by_branch.permute(1, 2, 0, 3).flatten(1)


def _places(branches: nn.ModuleDict) -> tuple[Tensor, list[tuple[int, ...]]]:
    """Return where the parameters of all branches lie in those of one LSTM, and the shapes of the latter."""
    width, start = _RECURRENT * len(_BRANCHES), 0
    columns = {"weight_ih": SERIES_COLUMNS, "weight_hh": width, "bias_ih": 1, "bias_hh": 1}
    places: dict[str, Tensor] = {}
    shapes: list[tuple[int, ...]] = []
    for end, (kind, count) in product(("l0", "l0_reverse"), columns.items()):
        whole = start + torch.arange(4 * width * count).view(4, len(_BRANCHES), _RECURRENT, count)
        for number, (name, read) in enumerate(_BRANCHES.items()):
            states = range(number * _RECURRENT, (number + 1) * _RECURRENT)
            own = {"weight_ih": read, "weight_hh": states}.get(kind, (0,))
            places[f"{name}.{kind}_{end}"] = whole[:, number, :, list(own)].flatten()
        shapes.append((4 * width, count) if count > 1 else (4 * width,))
        start += whole.numel()
    return torch.cat([places[name] for name, _ in branches.named_parameters()]), shapes


def _dense(inputs: int, widths: tuple[int, ...], *, batch_norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in widths:
        layers.append(nn.Linear(inputs, width))
        if batch_norm:
            layers.append(nn.BatchNorm1d(width))
        layers.append(nn.ReLU())
        inputs = width
    return nn.Sequential(*layers)


def as_arrays(network: Network) -> dict[str, NDArray[np.float64]]:
    """Return the parameters and buffers by name."""
    return {name: tensor.detach().numpy().astype(np.float64) for name, tensor in network.state_dict().items()}


def from_arrays(kind: Kind, statics: int, arrays: Mapping[str, NDArray[np.float64]]) -> Network:
    """Return the network of `as_arrays`. Raises ScenarioError for arrays that do not fit."""
    network = Network(statics, kind)
    own = network.state_dict()
    if set(own) != set(arrays):
        raise ScenarioError(f"network {kind}: other parameters than this version's; train it again")
    for name, tensor in own.items():
        values = arrays[name]
        if tuple(tensor.shape) != values.shape or not np.isfinite(values).all():
            raise ScenarioError(f"network {kind}: {name} has another shape, or a value that is no number")
        own[name] = torch.as_tensor(values)
    network.load_state_dict(own)
    network.eval()
    return network
