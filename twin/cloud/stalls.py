"""The profiler's runs as the twin expects them: from one worker's time, gradients, files and links.

For: stalls of a job before it ran on more than one worker (control.profiler.stalls takes the runs apart). Not
for: measuring, nor for α and β, which come with the machine. Data-parallel workers exchange gradients in
buckets as PyTorch's DDP makes them, each by a ring in the α–β model. Nothing overlaps: a worker that computes
on a CPU's quota has no other engine that could exchange meanwhile, and reads its samples itself. Sources: Li
et al., "PyTorch Distributed", VLDB 2020, §3.2.3, and torch/nn/parallel/distributed.py for the buckets;
twin.fabric.collectives for the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from control.profiler.stalls import Run, Timing
from twin.fabric.collectives import AlphaBeta, Collective, time_s
from twinbed import ScenarioError

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""Sizes from which DDP closes its first bucket and the others, B: _DEFAULT_FIRST_BUCKET_BYTES, bucket_cap_mb.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What the workers share.

    inside: α and β between two workers of the machine.
    network_bps: rate of a machine's link where each worker has a machine of its own, bit/s.
    prepare_s: time to read a sample from the page cache, s.
    fetch_s: time that a sample from the disk takes longer, s.
    """

    inside: AlphaBeta
    network_bps: float
    prepare_s: float
    fetch_s: float


def buckets(gradient_bytes: Sequence[int]) -> tuple[int, ...]:
    """Return the size of each message of DDP, B, in the order in which they are sent.

    gradient_bytes: size of each trained tensor, in the order of the model. The last one's gradient is the
    first to be known.
    """
    sizes: list[int] = []
    held = 0
    for size in reversed(gradient_bytes):
        held += size
        if held >= (BUCKET_BYTES if sizes else FIRST_BUCKET_BYTES):
            sizes.append(held)
            held = 0
    return (*sizes, held) if held else tuple(sizes)


def exchange_s(gradient_bytes: Sequence[int], workers: int, links: AlphaBeta) -> float:
    """Return the time in which workers exchange the gradients of one step, s."""
    if workers < 2:
        return 0.0
    sizes = list(buckets(gradient_bytes))
    return float(time_s(Collective.ALL_REDUCE, sizes, workers, links.alpha_s, links.rate_bps).sum())


def runs(
    alone: Timing, batch: int, workers: int, gradient_bytes: Sequence[int], machine: Machine
) -> Mapping[Run, Timing]:
    """Return all runs with the samples of RUN0. alone: RUN0, measured; batch: samples per worker and step.

    Raises ScenarioError for a batch below one.
    """
    if batch < 1:
        raise ScenarioError(f"a batch of {batch} samples: expected at least 1")
    steps = alone.samples / batch
    slower = AlphaBeta(machine.inside.alpha_s, min(machine.inside.rate_bps, machine.network_bps))
    expected = {Run.ALONE: alone.time_s(alone.samples)}
    expected[Run.TOGETHER] = expected[Run.ALONE] + steps * exchange_s(gradient_bytes, workers, machine.inside)
    expected[Run.WARM] = expected[Run.TOGETHER] + alone.samples * machine.prepare_s
    expected[Run.COLD] = expected[Run.WARM] + alone.samples * machine.fetch_s
    expected[Run.APART] = expected[Run.ALONE] + steps * exchange_s(gradient_bytes, workers, slower)
    return {run: Timing((seconds,), alone.samples) for run, seconds in expected.items()}
