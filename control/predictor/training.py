"""Training of a network: losses, batches and early stopping.

For: turning examples into a trained predictor. Not for: the architecture (networks.py), nor cross-validation
(evaluation.py). Source: chapter 4 (cloud) of the doctoral thesis: Huber loss (δ = 1) for cost, Poisson for
time, binary cross-entropy for the classifiers, Adam, batches of 32, at most 400 epochs. Our reading: costs
and times are divided by the training rows' mean, so that δ and the learning rates mean the same for jobs of
minutes and of days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from control.jobs import Real, Whole
from control.predictor.examples import FEWEST_ROWS, Examples, best
from control.predictor.features import Encoded, Encoder
from control.predictor.networks import RECIPES, Kind, Network
from twinbed import ScenarioError

_BETAS = (0.5, 0.999)
"""Adam's betas (thesis, chapter 4)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long to train.

    epochs: largest number of epochs.
    batch: rows per step.
    held_out: share of the rows whose loss decides when to stop.
    patience: epochs without a smaller held-out loss after which training stops.
    """

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
class Trained:
    """A trained network.

    kind, encoder, network: the network and how its rows are encoded.
    unit: seconds or dollars that an output of 1 means.
    losses: losses on training and held-out rows after each epoch.
    """

    kind: Kind
    encoder: Encoder
    network: Network
    unit: float
    losses: tuple[tuple[float, float], ...] = ()

    def predict(self, examples: Examples) -> Real:
        """See Predictor."""
        return self.predict_encoded(self.encoder.encode(examples))

    def predict_encoded(self, encoded: Encoded) -> Real:
        """See Predictor."""
        static, series, job = _tensors(encoded)
        self.network.eval()
        with torch.inference_mode():
            out = self.network(static, series, job)
            values: Real = (torch.sigmoid(out) if self.kind.classifies else out * self.unit).double().numpy()
        return values


def train(kind: Kind, examples: Examples, seed: int, *, schedule: Schedule = Schedule()) -> Trained:
    """Return a network trained on `examples`; the same seed gives the same network on the same machine.

    Raises ScenarioError for fewer than FEWEST_ROWS rows, or rows without an outcome.
    """
    examples.check_known(kind.by, FEWEST_ROWS)
    encoder = Encoder.fit(examples)
    target, unit = _target(kind, examples)
    with torch.random.fork_rng(), _one_thread():
        torch.manual_seed(seed)
        network = Network(len(encoder.columns), kind)
        losses = _descend(network, encoder.encode(examples), target, schedule, seed)
    return Trained(kind, encoder, network, unit, tuple(losses))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread: the networks are so small that a second thread costs more time than it saves."""
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
    network: Network, encoded: Encoded, target: Real, schedule: Schedule, seed: int
) -> list[tuple[float, float]]:
    """Train the network in place. Returns the losses on training and held-out rows after each epoch."""
    rng = np.random.default_rng(seed)
    static, series, job = _tensors(encoded)
    goal = torch.as_tensor(target, dtype=torch.float32)
    order = rng.permutation(len(target))
    split = max(1, round(schedule.held_out * len(order)))
    held_out, kept = torch.as_tensor(order[:split]), order[split:]
    loss_of = _loss(network.kind)
    # Fused: one call updates all the small parameters. It takes a fifth of the time of one call per
    # parameter.
    optimizer = torch.optim.Adam(
        network.parameters(), lr=RECIPES[network.kind].rate, betas=_BETAS, fused=True
    )
    losses: list[tuple[float, float]] = []
    state, least, since = None, np.inf, 0
    for _ in range(schedule.epochs):
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
            held_out_loss = float(loss_of(network(static[held_out], series, job[held_out]), goal[held_out]))
        losses.append((total / len(kept), held_out_loss))
        if held_out_loss < least:
            least, since = held_out_loss, 0
            state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
        elif (since := since + 1) >= schedule.patience:
            break
    if state is None:
        raise ScenarioError(f"the network {network.kind} did not learn: its loss is not a number")
    network.load_state_dict(state)
    network.eval()
    return losses


def _batches(order: Whole, size: int) -> list[Whole]:
    """Return the rows of each batch; a single last row joins the batch before it, for batch norm."""
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
