"""What passes between recommenders and who asks them: types, candidates, jobs, past runs, trials, answers.

For: the data of every recommender and predictor, as structures of arrays where there are many (a ranking of
10,000 candidates is a few vector operations) and frozen rows where there are few. Not for: deciding (one
module per recommender), prices (they come in with the candidates), files. Times are seconds, costs US
dollars, prices US dollars per hour of the whole cluster, memory GiB, networks bit/s, unless a name says
otherwise; NaN means "not known", never zero. Source: SPEC §3, seed FC² (§5: budgets, servers, workers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from twinbed import InvariantError, ScenarioError

Real = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
Names = NDArray[np.str_]


class Objective(StrEnum):
    """What a recommendation is ranked by; the other quantity is bounded by a budget or a deadline."""

    COST = "cost"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One type of virtual machine; a price is no property of a type (it has a region, a market and a date).

    vcpus: virtual CPUs; network_bps: what one instance may send, bit/s; cpu_speed: of one vCPU, relative to
    any common unit (ECU per vCPU on EC2); disk_gib: local disk. NaN where not known, "" for no GPU.
    """

    name: str
    provider: str
    vcpus: float
    memory_gib: float
    gpus: int = 0
    gpu_model: str = ""
    network_bps: float = float("nan")
    family: str = ""
    cpu_speed: float = float("nan")
    disk_gib: float = float("nan")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A cluster and how a job runs on it: `workers` instances of one type, and `servers` parameter servers.

    batch: samples per worker and step, None if the job's own.
    """

    instance: str
    workers: int
    batch: int | None = None
    servers: int = 0
    server_instance: str = ""

    def __str__(self) -> str:
        servers = f" + {self.servers} × {self.server_instance}" if self.servers else ""
        batch = f", batch {self.batch}" if self.batch is not None else ""
        return f"{self.workers} × {self.instance}{servers}{batch}"


@dataclass(frozen=True, slots=True)
class Candidates:
    """n configurations to choose among, an array per quantity.

    name: of the worker's type, [n]; count: workers, int64[n]; batch: samples per worker and step, float64[n]
    (NaN: the job's own); price_usd_h: of the whole cluster, servers included; vcpus, memory_gib, gpus,
    network_bps, cpu_speed: of ONE worker, float64[n]; servers, server: of parameter servers, int64[n] and
    names[n]; parameters: further numeric settings (a learning rate), float64[n] each, the same for all jobs.
    Raises InvariantError if columns differ in length, ScenarioError if there are none.
    """

    name: Names
    count: Whole
    batch: Real
    price_usd_h: Real
    vcpus: Real
    memory_gib: Real
    gpus: Real
    network_bps: Real
    cpu_speed: Real
    servers: Whole
    server: Names
    parameters: Mapping[str, Real] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {each.name: getattr(self, each.name).shape for each in fields(self)[:-1]}
        columns |= {name: values.shape for name, values in self.parameters.items()}
        if len(set(columns.values())) > 1:
            raise InvariantError(f"candidates have columns of different lengths: {columns}")
        if not self.name.size:
            raise ScenarioError(
                "no candidate configuration is left; allow more types, more workers or more money"
            )

    def __len__(self) -> int:
        return int(self.name.size)

    def take(self, rows: Whole | Flags) -> Candidates:
        """The candidates at `rows` (positions or a mask), in that order."""
        columns = {each.name: getattr(self, each.name)[rows] for each in fields(self)[:-1]}
        return Candidates(**columns, parameters={name: each[rows] for name, each in self.parameters.items()})

    def repriced(self, price_usd_h: Real) -> Candidates:
        """The same candidates at other prices ("what if the price moves")."""
        return replace(self, price_usd_h=price_usd_h)

    def configuration(self, row: int) -> Configuration:
        """The configuration at position `row`."""
        batch = self.batch[row]
        return Configuration(
            str(self.name[row]),
            int(self.count[row]),
            None if np.isnan(batch) else int(batch),
            int(self.servers[row]),
            str(self.server[row]),
        )


def candidates(
    types: Mapping[str, InstanceType],
    prices_usd_h: Mapping[str, float],
    configurations: list[Configuration],
    parameters: Mapping[str, Real] | None = None,
) -> Candidates:
    """Candidates from rows: prices_usd_h is of ONE instance of a type; servers are paid for, too.

    Raises ScenarioError naming the type that is unknown or has no price.
    """
    used = {each.instance for each in configurations} | {
        each.server_instance for each in configurations if each.servers
    }
    for name in sorted(used):
        if name not in types:
            raise ScenarioError(f"no instance type {name!r}; there are {', '.join(sorted(types))}")
        if not np.isfinite(prices_usd_h.get(name, np.nan)):
            raise ScenarioError(f"type {name} has no price; state one or leave the type out")
    workers = [types[each.instance] for each in configurations]
    return Candidates(
        name=np.array([each.instance for each in configurations], dtype=np.str_),
        count=np.array([each.workers for each in configurations], dtype=np.int64),
        batch=np.array([np.nan if each.batch is None else each.batch for each in configurations]),
        price_usd_h=np.array(
            [
                each.workers * prices_usd_h[each.instance]
                + (each.servers * prices_usd_h[each.server_instance] if each.servers else 0.0)
                for each in configurations
            ]
        ),
        vcpus=np.array([each.vcpus for each in workers], dtype=np.float64),
        memory_gib=np.array([each.memory_gib for each in workers], dtype=np.float64),
        gpus=np.array([each.gpus for each in workers], dtype=np.float64),
        network_bps=np.array([each.network_bps for each in workers], dtype=np.float64),
        cpu_speed=np.array([each.cpu_speed for each in workers], dtype=np.float64),
        servers=np.array([each.servers for each in configurations], dtype=np.int64),
        server=np.array([each.server_instance for each in configurations], dtype=np.str_),
        parameters=dict(parameters or {}),
    )


def joined(first: Candidates, second: Candidates) -> Candidates:
    """The candidates of both, one after the other; a parameter that one of them lacks is NaN there."""
    columns = {
        each.name: np.concatenate([getattr(first, each.name), getattr(second, each.name)])
        for each in fields(Candidates)[:-1]
    }
    parameters = {
        name: np.concatenate(
            [each.parameters.get(name, np.full(len(each), np.nan)) for each in (first, second)]
        )
        for name in {**first.parameters, **second.parameters}
    }
    return Candidates(**columns, parameters=parameters)


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A short run of the job on one machine (1 master + 2 workers in the source): n intervals, w processes.

    cpu_cores, memory_bytes, net_in_bytes, net_out_bytes: float64[n, w], CPU in cores, bytes moved per
    interval; step_s: time of each step after warm-up, float64[k]; batch: samples per worker and step;
    parameters: of the model; layers: the types of its layers in order. Raises ScenarioError on NaN, on a
    negative value or on no step.
    """

    interval_s: float
    cpu_cores: Real
    memory_bytes: Real
    net_in_bytes: Real
    net_out_bytes: Real
    step_s: Real
    batch: int
    parameters: int
    layers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        series = ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes")
        if len({getattr(self, name).shape for name in series}) > 1:
            raise ScenarioError(
                f"local run: {', '.join(series)} differ in intervals or processes; record it anew"
            )
        for name in (*series, "step_s"):
            values = getattr(self, name)
            if not np.isfinite(values).all() or (values < 0).any():
                raise ScenarioError(f"local run: {name} holds NaN or a negative value; record it anew")
        if not self.step_s.size:
            raise ScenarioError("local run: step_s is empty; run the job for at least one step after warm-up")


@dataclass(frozen=True, slots=True)
class Job:
    """A training job: numbers that describe it (features), its local run if there is one, its batch size.

    features: learning rate, epochs, layers, one-hots …; samples: to be processed in all (NaN: not known).
    """

    name: str
    features: Mapping[str, float] = field(default_factory=dict)
    local_run: LocalRun | None = None
    batch: int | None = None
    samples: float = float("nan")


@dataclass(frozen=True, slots=True)
class History:
    """Past runs of m jobs over the same n candidates; NaN where a job was not run there.

    time_s, cost_usd: float64[m, n]; ok: bool[m, n], False where a run failed, timed out or missed its goal
    (its time is then a lower bound) as where there was none. Raises InvariantError on other shapes.
    """

    jobs: tuple[str, ...]
    candidates: Candidates
    time_s: Real
    cost_usd: Real
    ok: Flags

    def __post_init__(self) -> None:
        shape = (len(self.jobs), len(self.candidates))
        if not self.time_s.shape == self.cost_usd.shape == self.ok.shape == shape:
            raise InvariantError(
                f"history of {shape[0]} jobs on {shape[1]} candidates has tables of other shapes"
            )

    def without(self, job: str) -> History:
        """The history of the other jobs."""
        rows = np.array([name != job for name in self.jobs], dtype=np.bool_)
        names = tuple(name for name in self.jobs if name != job)
        return History(names, self.candidates, self.time_s[rows], self.cost_usd[rows], self.ok[rows])

    def objective(self, by: Objective) -> Real:
        """cost_usd or time_s, float64[m, n]."""
        return self.cost_usd if by is Objective.COST else self.time_s


@dataclass(frozen=True, slots=True)
class Observations:
    """What a search has paid for so far, in the order of its trials, k of them.

    candidate: positions in the candidates, int64[k]; time_s, cost_usd: float64[k]; ok: bool[k] (see History).
    """

    candidate: Whole
    time_s: Real
    cost_usd: Real
    ok: Flags

    def __len__(self) -> int:
        return int(self.candidate.size)

    def objective(self, by: Objective) -> Real:
        """cost_usd or time_s, float64[k]."""
        return self.cost_usd if by is Objective.COST else self.time_s

    def with_trial(self, candidate: int, time_s: float, cost_usd: float, ok: bool) -> Observations:
        """These and one more."""
        return Observations(
            np.append(self.candidate, np.int64(candidate)),
            np.append(self.time_s, time_s),
            np.append(self.cost_usd, cost_usd),
            np.append(self.ok, ok),
        )


def no_observations() -> Observations:
    """What a search knows before its first trial."""
    return Observations(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class Proposal:
    """Run this candidate next; reason is a sentence made from figures."""

    candidate: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """No further trial pays; `best` is the candidate to take, not always one that was tried."""

    best: int
    reason: str


@dataclass(frozen=True, slots=True)
class Interval:
    """Between low and high with probability `coverage`."""

    low: float
    high: float
    coverage: float = 0.9


@dataclass(frozen=True, slots=True)
class Recommendation:
    """One row of a ranking, best first.

    time_s, cost_usd: predicted for the whole job, with their intervals; price_usd_h: of the whole cluster, as
    it was used; reason: a sentence made from figures.
    """

    configuration: Configuration
    time_s: float
    cost_usd: float
    time_interval: Interval
    cost_interval: Interval
    price_usd_h: float
    reason: str
