"""The input and output of a fleet's simulation: machines, causes of faults, the job, and the use of its time.

For: the data of fleet.py. Not for: simulating. A row of the topology is one attachment to the network: a
host's, or a GPU's if each GPU has its own adapter. A host is `rows_per_host` consecutive rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.fabric import FaultKind
from twin.fabric.checkpoints import Checkpointing
from twin.fabric.model import Delay, Floats, Topology, Whole
from twin.fabric.transports import Transport
from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause of random faults. Every component fails on its own (Poisson), whether the job runs or not.

    kind: kind of the component (PORT counts as LINK); None: the host itself, with the job on it.
    per_s: faults of one component per second.
    repair: time until the component works again.
    """

    name: str
    kind: FaultKind | None
    per_s: float
    repair: Delay


@dataclass(frozen=True, slots=True)
class FleetSpec:
    """A synchronous job on all hosts of a fleet.

    topology: the fleet's edge. rows_per_host, gpus_per_host: attachments and GPUs of a host.
    spares: number of hosts that can take the place of a dead one.
    duration_s: simulated time, s.
    iteration_s: float64[U + 1], length of an iteration if the worst attachment has k working uplinks, s
    (element 0 is unused).
    jitter_cv: coefficient of variation of iterations (lognormal).
    busy: float64[k, 2], ascending and disjoint: times at which flows are on the network, as shares of an
    iteration (jobs.iteration).
    flows: number of connections of an attachment in each direction, each on one of its uplinks.
    causes: causes of faults.
    gaps_s: float64[n, 2] (OUT, IN), times for which packets of a broken path are lost, s, drawn with
    replacement (inf: until the repair).
    transport: transport of the job's collectives. checkpointing: settings of saves and restarts.
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
        """Number of hosts of the job."""
        return self.topology.hosts // self.rows_per_host

    @property
    def gpus(self) -> int:
        """Number of GPUs of the job."""
        return self.hosts * self.gpus_per_host

    def __post_init__(self) -> None:
        """Raise ScenarioError, which names the wrong value."""
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
    """The use of the time, s. The parts add up to duration_s.

    ideal_s: kept iterations at the pace of a healthy fleet, iteration_s[U].
    jitter_s: random difference of kept iterations from that pace.
    degraded_s: time that missing uplinks added to kept iterations.
    stalled_s: time that gaps added to kept iterations.
    saving_s: finished saves.
    lost_s: time from the last save to each death.
    down_s: time from each death to the first step afterwards.
    open_s: time of the activity that was under way at the end.
    """

    ideal_s: float
    jitter_s: float
    degraded_s: float
    stalled_s: float
    saving_s: float
    lost_s: float
    down_s: float
    open_s: float


@dataclass(frozen=True, slots=True)
class FleetOutcome:
    """The outcome of the job.

    iterations: number of kept iterations. iteration_s: float64[n], length of every executed iteration in
    order, s.
    fault_at_s: float64[f], time of each fault, s. fault_cause: int64[f], index into the causes.
    fault_stall_s: float64[f], time that the fault added to the job, s (inf: the job died; NaN: it was not
    running).
    """

    gpus: int
    duration_s: float
    bill: Bill
    iterations: int
    iteration_s: Floats
    fault_at_s: Floats
    fault_cause: Whole
    fault_stall_s: Floats

    @property
    def deaths(self) -> int:
        """Number of times that the job died."""
        return int(np.isinf(self.fault_stall_s).sum())

    @property
    def effective_ratio(self) -> float:
        """Share of the time that was kept training at the pace of a healthy fleet."""
        return (self.bill.ideal_s + self.bill.jitter_s) / self.duration_s

    @property
    def kept_gpu_hours(self) -> float:
        """GPU-hours of kept training at that pace."""
        return self.effective_ratio * self.duration_s * self.gpus / 3600
