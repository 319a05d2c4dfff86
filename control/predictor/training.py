"""Training a network: losses, batches, early stopping; seeds come in, progress goes out through a function.

For: from examples to a trained predictor that can be asked and stored. Not for: the architecture
(networks.py), nor cross-validation (evaluation.py). Source: SPEC §3.1: Huber (δ = 1) for cost, Poisson for
time, binary cross-entropy for the classifiers, Adam, batches of 32, at most 400 epochs.

Reading of ours: a cost or time is divided by the training rows' mean, so that δ = 1 and the learning rates
mean the same for jobs of minutes and of days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from control.predictor.examples import Examples, best
from control.predictor.features import Encoded, Encoder
from control.predictor.networks import RECIPES, Kind, Network
from control.recommender.model import Real, Whole
from twinbed import ScenarioError

FEWEST_ROWS = 10


@dataclass(frozen=True, slots=True)
class Schedule:
    """epochs: at most; batch: rows per step; held_out: share of the rows that says when to stop; patience:
    epochs without a better loss on them."""

    epochs: int = 400
    batch: int = 32
    held_out: float = 0.2
    patience: int = 60

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2 or self.patience < 1 or not 0 < self.held_out < 1:
            raise ScenarioError(
                f"training: {self}: expected at least 1 epoch, batches of 2, patience of 1, and a share held "
                "out"
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """After an epoch: its number from 1, of how many, the losses on both parts."""

    epoch: int
    epochs: int
    loss: float
    held_out_loss: float


@dataclass(frozen=True, slots=True)
class Trained:
    """A network, the encoder that its rows went through, and what a value of 1 means (seconds or dollars)."""

    kind: Kind
    encoder: Encoder
    network: Network
    unit: float
    losses: tuple[tuple[float, float], ...] = ()

    def predict(self, examples: Examples) -> Real:
        """float64[n]: seconds, dollars, or how likely each row is one of its job's best (0 … 1)."""
        return self.predict_encoded(self.encoder.encode(examples))

    def predict_encoded(self, encoded: Encoded) -> Real:
        """The same, of rows that have been through the encoder."""
        static, series, job = _tensors(encoded)
        self.network.eval()
        with torch.inference_mode():
            out = self.network(static, series, job)
            values: Real = (torch.sigmoid(out) if self.kind.classifies else out * self.unit).double().numpy()
        return values


def train(
    kind: Kind,
    examples: Examples,
    seed: int,
    *,
    schedule: Schedule = Schedule(),
    on_epoch: Callable[[Progress], None] | None = None,
) -> Trained:
    """Learns from all rows of `examples`; the same seed gives the same network on the same machine.

    Raises ScenarioError for fewer than FEWEST_ROWS rows, or rows without an outcome.
    """
    if len(examples) < FEWEST_ROWS:
        raise ScenarioError(
            f"{len(examples)} rows to learn from; at least {FEWEST_ROWS} are needed: add past runs"
        )
    examples.check_known(kind.by)
    encoder = Encoder.fit(examples)
    target, unit = _target(kind, examples)
    with torch.random.fork_rng(), _one_thread():
        torch.manual_seed(seed)
        network = Network(len(encoder.columns), kind)
        losses = _descend(network, encoder.encode(examples), target, schedule, seed, on_epoch)
    return Trained(kind, encoder, network, unit, tuple(losses))


@contextmanager
def _one_thread() -> Iterator[None]:
    """The networks are small: a second thread costs more than it brings, and other trainings want it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _target(kind: Kind, examples: Examples) -> tuple[Real, float]:
    value = examples.objective(kind.by)
    if kind.classifies:
        return best(value, examples.job).astype(np.float64), 1.0
    unit = float(value.mean())
    return value / unit, unit


def _descend(
    network: Network,
    encoded: Encoded,
    target: Real,
    schedule: Schedule,
    seed: int,
    on_epoch: Callable[[Progress], None] | None,
) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    static, series, job = _tensors(encoded)
    goal = torch.as_tensor(target, dtype=torch.float32)
    order = rng.permutation(len(target))
    split = max(1, round(schedule.held_out * len(order)))
    held_out, kept = torch.as_tensor(order[:split]), order[split:]
    loss_of = _loss(network.kind)
    # Fused: all of the many small parameters in one call, a fifth of the time of one after the other.
    optimizer = torch.optim.Adam(network.parameters(), lr=RECIPES[network.kind].rate, fused=True)
    losses: list[tuple[float, float]] = []
    state, least, since = None, np.inf, 0
    for epoch in range(1, schedule.epochs + 1):
        network.train()
        total = 0.0
        for batch in _batches(rng.permutation(kept), schedule.batch):
            rows = torch.as_tensor(batch)
            optimizer.zero_grad()
            loss = loss_of(network(static[rows], series, job[rows]), goal[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(loss.detach()) * len(batch)
        network.eval()
        with torch.inference_mode():
            found = float(loss_of(network(static[held_out], series, job[held_out]), goal[held_out]))
        losses.append((total / len(kept), found))
        if on_epoch is not None:
            on_epoch(Progress(epoch, schedule.epochs, *losses[-1]))
        if found < least:
            least, since = found, 0
            state = {name: each.clone() for name, each in network.state_dict().items()}
        elif (since := since + 1) >= schedule.patience:
            break
    if state is None:
        raise ScenarioError(f"the network {network.kind} did not learn: its loss is no number")
    network.load_state_dict(state)
    network.eval()
    return losses


def _batches(order: Whole, size: int) -> list[Whole]:
    """Batch norm needs two rows: a last one that is alone joins the batch before it."""
    starts = list(range(0, len(order), size))
    if len(starts) > 1 and len(order) - starts[-1] < 2:
        starts.pop()
    return [order[start:end] for start, end in zip(starts, [*starts[1:], len(order)], strict=True)]


def _loss(kind: Kind) -> Callable[[Tensor, Tensor], Tensor]:
    if kind.classifies:
        return nn.BCEWithLogitsLoss()
    return nn.HuberLoss(delta=1.0) if kind is Kind.COST else nn.PoissonNLLLoss(log_input=False)


def _tensors(encoded: Encoded) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.as_tensor(encoded.static, dtype=torch.float32),
        torch.as_tensor(encoded.series, dtype=torch.float32),
        torch.as_tensor(encoded.job),
    )
