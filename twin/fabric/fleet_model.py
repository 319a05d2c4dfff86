"""What a fleet's simulation takes and gives: the machines, what breaks, the job, and the bill.

For: the data of fleet.py. Not for: simulating. A row of the topology is one attachment to the network (a
host's, or each GPU's where it has an adapter of its own); a host is `rows_per_host` rows in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from control.fabric import FaultKind
from twin.fabric.checkpoints import Checkpointing
from twin.fabric.model import Delay, Floats, Topology, Whole
from twin.fabric.transports import Transport
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that breaks at random, every component on its own (Poisson), whether the job runs or not.

    kind: of the component (PORT counts as LINK); None: the host itself, with the job on it. per_s: faults of
    one component per second. repair: until it works again. swap: a job that lives on without it saves after
    the running iteration and starts again with a spare in the host's place, if there is one.
    """

    name: str
    kind: FaultKind | None
    per_s: float
    repair: Delay
    swap: bool = False


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """A synchronous job on all the fleet's hosts, for duration_s.

    topology: its edge; rows_per_host, gpus_per_host; spares: hosts that can take a dead one's place.
    iteration_s: float64[U + 1], an iteration where the attachment with the fewest working uplinks has k of
    them (element 0 is not used); jitter_cv: coefficient of variation of iterations (lognormal).
    busy: float64[k, 2], ascending and disjoint, when flows are on the network, as shares of an iteration
    (jobs.iteration); flows: connections of an attachment per direction, each on one of its uplinks. gaps_s:
    float64[n, 2] (OUT, IN), how long packets of a path are lost after it broke, drawn with replacement (inf:
    until the repair).
    """

    topology: Topology
    rows_per_host: int
    gpus_per_host: int
    spares: int
    duration_s: float
    iteration_s: Floats
    jitter_cv: float
    busy: Floats
    flows: int
    causes: tuple[Cause, ...]
    gaps_s: Floats
    transport: Transport
    checkpointing: Checkpointing

    @property
    def hosts(self) -> int:
        """Of the job."""
        return self.topology.hosts // self.rows_per_host

    @property
    def gpus(self) -> int:
        """Of the job."""
        return self.hosts * self.gpus_per_host

    def __post_init__(self) -> None:
        """Raises ScenarioError naming what is wrong."""
        if self.topology.hosts % self.rows_per_host:
            raise ScenarioError(
                f"rows_per_host is {self.rows_per_host}, but {self.topology.hosts} rows are no whole hosts"
            )
        if len(self.iteration_s) != self.topology.uplinks + 1 or not np.all(self.iteration_s[1:] > 0):
            raise ScenarioError(
                f"iteration_s has {len(self.iteration_s)} values, expected one above zero for 0 to "
                f"{self.topology.uplinks} uplinks"
            )
        if self.gaps_s.ndim != 2 or self.gaps_s.shape[1] != 2 or not len(self.gaps_s):
            raise ScenarioError(f"gaps_s is {self.gaps_s.shape}, expected rows of (OUT, IN)")
        edges = self.busy.ravel()
        if self.busy.shape[1:] != (2,) or np.any(np.diff(edges) < 0) or np.any((edges < 0) | (edges > 1)):
            raise ScenarioError("busy: expected ascending spans of shares of an iteration, 0 to 1")
        if self.jitter_cv < 0 or self.flows < 1 or self.spares < 0:
            raise ScenarioError("expected jitter_cv >= 0, flows >= 1, spares >= 0")
        for cause in self.causes:
            if not 0 <= cause.per_s < np.inf:
                raise ScenarioError(
                    f"cause {cause.name!r}: per_s is {cause.per_s}, expected faults per second"
                )


@dataclass(frozen=True, slots=True)
class Bill:
    """Where the time went, in seconds; the parts add up to duration_s.

    ideal_s: kept iterations at iteration_s[U]; jitter_s: what they took more or less by their own;
    degraded_s: by missing uplinks; stalled_s: by gaps; saving_s: of saves that were finished; planned_s:
    starts after planned swaps; lost_s: from the last save to a death; down_s: from a death to the first step
    again; open_s: of what was under way at the end.
    """

    ideal_s: float
    jitter_s: float
    degraded_s: float
    stalled_s: float
    saving_s: float
    planned_s: float
    lost_s: float
    down_s: float
    open_s: float


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """bill; iterations: kept ones; iteration_s: float64[n], of every one that was executed, in order.

    fault_at_s: float64[f]; fault_cause: int64[f], index into the causes; fault_row: int64[f], the first
    attachment that it hit; fault_stall_s: float64[f], what it added to the job (inf: the job died; NaN: the
    job was not running).
    """

    gpus: int
    duration_s: float
    bill: Bill
    iterations: int
    iteration_s: Floats
    fault_at_s: Floats
    fault_cause: Whole
    fault_row: Whole
    fault_stall_s: Floats

    @property
    def deaths(self) -> int:
        """How often the job died."""
        return int(np.isinf(self.fault_stall_s).sum())

    @property
    def effective_ratio(self) -> float:
        """Share of the time that was training that was kept, at the pace of a healthy fleet."""
        return (self.bill.ideal_s + self.bill.jitter_s) / self.duration_s

    @property
    def lost_gpu_hours(self) -> float:
        """GPU-hours that were no kept training at that pace."""
        return (1 - self.effective_ratio) * self.duration_s * self.gpus / 3600


def confidence(values: Floats) -> tuple[float, float]:
    """(mean, half of its 95 % confidence interval by Student's t) over seeds; the half is NaN for one."""
    if len(values) < 2:
        return float(np.mean(values)), np.nan
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)
