"""Input and output of the period-level container twin, as structures of arrays.

For: the workload, the machine's parameters and the recorded series. Not for: the physics (cfs.py, memory.py)
nor the control loop (simulation.py). Row t is period [t·P, (t+1)·P); column i is a container.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from control.allocator.hpa import HpaSettings
from control.allocator.model import Application

if TYPE_CHECKING:
    from twin.containers.requests.model import RequestLog, RequestWorkload
    from twin.containers.serverless_model import ServerlessWorkload

Floats = NDArray[np.float64]


Population: TypeAlias = "Workload | RequestWorkload | ServerlessWorkload"
"""A workload of N containers of any kind. What they have in common is explained in `Workload`."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The workload of each replica, if the HPA decides the number of replicas (replicas.py).

    of: int64[N], the column's workload, 0 … W − 1, ascending. number: int64[N], the replica, from 0.
    demand_cores: float64[T, W], each workload's demand. at_first: each workload's replicas at the start, ≥ 1.
    """

    of: NDArray[np.int64]
    number: NDArray[np.int64]
    demand_cores: Floats
    at_first: int
    settings: HpaSettings


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which containers of a job wait for each other (job.py).

    of: int64[N], the container's group of ranks, from 0; −1: it waits for no other container.
    meets: float64[N], the period of the recording in which it first was connected to the group's others.
    """

    of: NDArray[np.int64]
    meets: Floats


class Block(Protocol):
    """Some rows of a workload's tables."""

    @property
    def first(self) -> int:
        """The period of the first row."""

    @property
    def cpu_cores(self) -> Floats:
        """CPU demand, float64[t, N], cores."""

    @property
    def memory_bytes(self) -> NDArray[np.int64]:
        """Memory that each container wants to hold at the period's end, bytes, int64[t, N]."""

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether the container exists in the period, bool[t, N]."""


class BlockReader(Protocol):
    """Reads a workload's blocks in order, for one simulation."""

    def block(self, number: int) -> Block:
        """Return the block of that number, from 0. Numbers never decrease."""

    def close(self) -> None:
        """End the reading. No more blocks are read."""


class Blocks(Protocol):
    """The tables of a workload in blocks, where all of them do not fit into memory."""

    @property
    def rows(self) -> int:
        """Number of periods."""

    @property
    def block_rows(self) -> int:
        """Number of periods of each block but the last."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Indices of the periods at whose begin a container joins or leaves, int64[k], ascending."""

    def reader(self) -> BlockReader:
        """Return a reader of the blocks. It yields each block once, in order."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The demand of the containers if nothing limits them.

    names, applications: names of the containers, in column order; applications with their global limits.
    period_s: the CFS period P, s.
    demand_cores: float64[T, N], CPU work that arrives in the period / P (cores). memory_bytes: int64[T, N],
    what the container wants to hold at the period's end. present: bool[T, N], False before it starts and
    after it ends; joins and leaves follow from it. threads: float64[N], CPUs it can keep busy at once.
    host: int64[N], index of the container's host. host_cores: float64[N], CPUs of that host. weight:
    float64[N] > 0, its cpu.weight, by which containers share a host that is short of CPUs. app: int64[N],
    index into applications. peak_cores, peak_bytes: float64[N] and int64[N], profiled maxima for policies
    that need a profile. A negative or non-finite value is an InvariantError, because traces are validated
    before they come here. is_job: the demand is a job's, whose work waits for what was not done before
    (job.py), instead of arriving whatever was done (fluid.py). ranks: containers of a job that wait for each
    other; None: there are none. host_memory_bytes: memory of each host for these containers, bytes; inf:
    enough for all. report_interval_s: time between two reports of a container, s; 0: one at each period's
    end. replication: None unless the number of replicas changes; then demand_cores is ignored. blocks:
    blocks from which the three tables are read; they are empty then, [0, N]. Jobs and replicas have none.
    """

    names: tuple[str, ...]
    applications: tuple[Application, ...]
    app: NDArray[np.int64]
    period_s: float
    demand_cores: Floats
    memory_bytes: NDArray[np.int64]
    present: NDArray[np.bool_]
    threads: Floats
    host: NDArray[np.int64]
    host_cores: Floats
    weight: Floats
    peak_cores: Floats
    peak_bytes: NDArray[np.int64]
    is_job: bool = False
    ranks: Ranks | None = None
    host_memory_bytes: float = np.inf
    report_interval_s: float = 0.0
    replication: Replication | None = None
    blocks: Blocks | None = None

    @property
    def periods(self) -> int:
        """Number of periods."""
        return len(self.present) if self.blocks is None else self.blocks.rows


@dataclass(frozen=True, slots=True)
class Machine:
    """Properties of a machine, as a calibration measures them. The lab reads them from the calibration TOML.

    telemetry_delay_s: time from a period's end until the allocator sees it.
    telemetry_jitter_s: its standard deviation (seeded, truncated at 0, one draw per period).
    quota_write_delay_s: time from the decision until the quota is in force.
    oom_grant_delay_s: time from holding a container until the raised limit is in force, per grant.
    reclaim_delay_s: time from the request for a reclaim until limits are lowered and reported.
    restart_s: start-up time of a container that is restarted or was killed.
    restart_cpu_s: CPU time of a start-up, on one thread under the container's quota (0: a start takes
        restart_s whatever the quota).
    burst_s: CFS burst credit (cfs_burst), CPU seconds that may be carried over.
    network_delay_s: delay of telemetry, decisions and their answers that cross the network.
    telemetry_loss: share of reports that are lost.
    """

    telemetry_delay_s: float
    telemetry_jitter_s: float
    quota_write_delay_s: float
    oom_grant_delay_s: float
    reclaim_delay_s: float
    restart_s: float
    burst_s: float = 0.0
    network_delay_s: float = 0.0
    telemetry_loss: float = 0.0
    restart_cpu_s: float = 0.0


@dataclass(slots=True)
class Series:
    """The recorded run: [T, N] arrays, one row per period (columns as in Workload).

    demand_cores, usage_cores, quota_cores: float32, cores; the quota is that at the period's end; inf: none.
    backlog_s: float32, CPU work not done at the period's end, core-seconds.
    throttled: bool. throttled_s: float32, throttled time as in cpu.stat, summed over CPUs.
    memory_bytes, limit_bytes: int64, at the period's end (limit 2^63−1 = none).
    cpu_reason: uint8, `Reason` of the last CPU limit change that took effect in the period.
    up: bool, present and running.
    request_cores: float32, CPU request in force at the period's end, NaN without a request; None if the
        policy decides no requests.
    """

    demand_cores: NDArray[np.float32]
    usage_cores: NDArray[np.float32]
    quota_cores: NDArray[np.float32]
    backlog_s: NDArray[np.float32]
    throttled: NDArray[np.bool_]
    throttled_s: NDArray[np.float32]
    memory_bytes: NDArray[np.int64]
    limit_bytes: NDArray[np.int64]
    cpu_reason: NDArray[np.uint8]
    up: NDArray[np.bool_]
    request_cores: NDArray[np.float32] | None = None


@dataclass(slots=True)
class Events:
    """Rare events, one row per event.

    at_s: time, s. container: column index.
    kind: one of EVENT_KINDS ('oom': held or killed at its memory limit).
    limit_bytes: the memory limit after the event, or 0.
    """

    at_s: list[float]
    container: list[int]
    kind: list[str]
    limit_bytes: list[int]

    def note(
        self, at_s: float, kind: str, columns: NDArray[np.int64], limit_bytes: NDArray[np.int64]
    ) -> None:
        """Add an event of this kind at `at_s` for each container in `columns`, with its limit, bytes."""
        self.at_s.extend([at_s] * len(columns))
        self.container.extend(columns.tolist())
        self.kind.extend([kind] * len(columns))
        self.limit_bytes.extend(limit_bytes.tolist())

    def add(
        self,
        at_s: Floats,
        columns: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        limit_bytes: NDArray[np.int64],
    ) -> None:
        """Add events, [n] arrays; kinds: places in EVENT_KINDS."""
        self.at_s.extend(at_s.tolist())
        self.container.extend(columns.tolist())
        self.kind.extend([EVENT_KINDS[kind] for kind in kinds.tolist()])
        self.limit_bytes.extend(limit_bytes.tolist())


EVENT_KINDS = ("oom", "grant", "kill", "restart", "reclaim", "join", "leave")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished simulation: series (None if not recorded), events, and counters over the run.

    limit_changes: number of CPU and memory limits changed by decisions.
    done_s, arrived_s: float64[N], core-seconds served and arrived.
    nr_periods, nr_throttled: int64[N], as in cpu.stat.
    reports: container-period records that reached the allocator. asked: those passed to its `on_period`.
    decide_s: time of this machine spent there, s; the only field in which two equal simulations differ.
    requests: None unless the workload consists of requests.
    reserved_cores: float64[N], sum over the periods in which the container is up of its quota, else its
        request, else its host's cores; None if the series is recorded.
    """

    series: Series | None
    events: Events
    limit_changes: int
    arrived_s: Floats
    done_s: Floats
    nr_periods: NDArray[np.int64]
    nr_throttled: NDArray[np.int64]
    reports: int
    decide_s: float
    requests: RequestLog | None = None
    asked: int = 0
    reserved_cores: Floats | None = None
