"""Terms of the cloud pillar: instance types, candidate clusters, training jobs, past runs.

For: recommenders, predictors and both backends. Data with many rows are arrays, so that 10,000 candidates
take a few vector operations; data with few rows are frozen dataclasses. Not for: deciding (recommender/,
predictor/), files, or looking prices up (they come in with the candidates). Source: FC² (Ta, Cluster
Computing 22, 2019) §5 for budgets, workers and servers; chapter 4 (cloud) of the doctoral thesis for jobs and
local runs.

Units, unless a name says otherwise: times in s, costs in US$, prices in US$ per hour of the whole cluster,
memory in GiB, network rates in bit/s. NaN means "not known"; it never stands for zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from control.objective import Objective as Objective
from twinbed import InvariantError, ScenarioError

Real = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
Names = NDArray[np.str_]

TOP, TOP_FACTOR = 5, 1.5
"""Definition of a job's top configurations: the best this many, within this factor of the best (thesis,
chapter 4)."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """A type of virtual machine. It has no price: prices depend on region, market and date.

    name: the provider's name of the type.
    provider: name of the cloud provider.
    vcpus: virtual CPUs.
    memory_gib: memory, GiB.
    gpus: number of GPUs.
    gpu_model: model of the GPUs, "" if there are none.
    network_bps: rate at which one instance can send, bit/s.
    family: the provider's family of types.
    cpu_speed: speed of one vCPU in any unit that all types share (ECU per vCPU on EC2).
    disk_gib: local disk, GiB.
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
    """A cluster and the batch size that a job uses on it.

    instance: type of the workers.
    workers: number of workers.
    batch: samples per worker and step; None means the job's own batch size.
    servers: number of parameter servers.
    server_instance: type of the parameter servers, "" if there are none.
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
    """The n candidate configurations, one array of length n per quantity.

    name: type of the workers. count: number of workers, int64. batch: samples per worker and step, float64;
    NaN means the job's own batch size. price_usd_h: price of the whole cluster with its servers, US$/h.
    vcpus, memory_gib, gpus, network_bps, cpu_speed, disk_gib: size of one worker, float64, as in
    InstanceType.
    servers: number of parameter servers, int64. server: type of the parameter servers. parameters: further
    numeric settings such as a learning rate, float64[n] by name.

    Raises InvariantError if arrays differ in length, ScenarioError if there is no candidate.
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
    disk_gib: Real
    servers: Whole
    server: Names
    parameters: Mapping[str, Real] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = {name: values.shape for name, values in {**self._columns(), **self.parameters}.items()}
        if len(set(shapes.values())) > 1:
            raise InvariantError(f"candidates have columns of different lengths: {shapes}")
        if not self.name.size:
            raise ScenarioError(
                "no candidate configuration is left; allow more types, more workers or more money"
            )

    def __len__(self) -> int:
        return int(self.name.size)

    def _columns(self) -> dict[str, NDArray[np.generic]]:
        return {column.name: getattr(self, column.name) for column in fields(self)[:-1]}

    def take(self, rows: Whole | Flags) -> Candidates:
        """Return the candidates at `rows` (positions or a mask), in that order."""
        columns = {name: values[rows] for name, values in self._columns().items()}
        parameters = {name: values[rows] for name, values in self.parameters.items()}
        return Candidates(**columns, parameters=parameters)  # type: ignore[arg-type]

    def repriced(self, price_usd_h: Real) -> Candidates:
        """Return the same candidates at other prices, US$/h, float64[n]."""
        return replace(self, price_usd_h=price_usd_h)

    def configuration(self, row: int) -> Configuration:
        """Return the configuration at position `row`."""
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
    configurations: Sequence[Configuration],
    parameters: Mapping[str, Real] | None = None,
) -> Candidates:
    """Return candidates made from rows. prices_usd_h: price of one instance by type, US$/h.

    A cluster's price includes its parameter servers. Raises ScenarioError naming a type that is unknown or
    has no price.
    """
    used = {row.instance for row in configurations} | {
        row.server_instance for row in configurations if row.servers
    }
    for name in sorted(used):
        if name not in types:
            raise ScenarioError(f"no instance type {name!r}; there are {', '.join(sorted(types))}")
        if not np.isfinite(prices_usd_h.get(name, np.nan)):
            raise ScenarioError(f"type {name} has no price; state one or leave the type out")

    def of_worker(quantity: str) -> Real:
        return np.array([getattr(types[row.instance], quantity) for row in configurations], dtype=np.float64)

    prices = [
        row.workers * prices_usd_h[row.instance]
        + (row.servers * prices_usd_h[row.server_instance] if row.servers else 0.0)
        for row in configurations
    ]
    return Candidates(
        name=np.array([row.instance for row in configurations], dtype=np.str_),
        count=np.array([row.workers for row in configurations], dtype=np.int64),
        batch=np.array([np.nan if row.batch is None else row.batch for row in configurations]),
        price_usd_h=np.array(prices),
        vcpus=of_worker("vcpus"),
        memory_gib=of_worker("memory_gib"),
        gpus=of_worker("gpus"),
        network_bps=of_worker("network_bps"),
        cpu_speed=of_worker("cpu_speed"),
        disk_gib=of_worker("disk_gib"),
        servers=np.array([row.servers for row in configurations], dtype=np.int64),
        server=np.array([row.server_instance for row in configurations], dtype=np.str_),
        parameters=dict(parameters or {}),
    )


def joined(first: Candidates, second: Candidates) -> Candidates:
    """Return the candidates of `first`, then those of `second`. A parameter that one of them lacks is NaN."""
    columns = {
        column.name: np.concatenate([getattr(first, column.name), getattr(second, column.name)])
        for column in fields(Candidates)[:-1]
    }
    parameters = {
        name: np.concatenate(
            [part.parameters.get(name, np.full(len(part), np.nan)) for part in (first, second)]
        )
        for name in {**first.parameters, **second.parameters}
    }
    return Candidates(**columns, parameters=parameters)


@dataclass(frozen=True, slots=True)
class LocalRun:
    """A short run of a job on one machine, over n intervals with w processes: the master, then its workers
    (two in the thesis).

    interval_s: length of an interval, s.
    cpu_cores: CPU use, cores, float64[n, w].
    memory_bytes: memory held, bytes, float64[n, w].
    net_in_bytes, net_out_bytes: bytes moved per interval, float64[n, w].
    step_s: duration of each step after warm-up, s, float64[k].
    batch: samples per worker and step.
    parameters: number of the model's trained parameters.
    layers: types of the model's layers, in order.
    optimiser: class of the optimiser, "" if not known.
    non_trainable: number of the model's parameters and statistics that are not trained; NaN if not known.
    input_size, output_size: numbers in the model's input and output per sample; NaN if not known.

    Raises ScenarioError on NaN, on a negative value, on series of different shapes or if there is no step.
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
    optimiser: str = ""
    non_trainable: float = float("nan")
    input_size: float = float("nan")
    output_size: float = float("nan")

    def __post_init__(self) -> None:
        series = ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes")
        if len({getattr(self, name).shape for name in series}) > 1:
            raise ScenarioError(
                f"local run: {', '.join(series)} differ in intervals or processes; record it again"
            )
        for name in (*series, "step_s"):
            values = getattr(self, name)
            if not np.isfinite(values).all() or (values < 0).any():
                raise ScenarioError(f"local run: {name} holds NaN or a negative value; record it again")
        if not self.step_s.size:
            raise ScenarioError("local run: step_s is empty; run the job for at least one step after warm-up")


@dataclass(frozen=True, slots=True)
class Job:
    """A training job.

    name: its name; parts of a path such as `sort/spark/large` show which past jobs it resembles.
    features: numbers that describe the job (learning rate, epochs, one-hots …).
    local_run: its local run, None if there is none.
    batch: samples per worker and step.
    samples: samples to process in all; NaN if not known.
    """

    name: str
    features: Mapping[str, float] = field(default_factory=dict)
    local_run: LocalRun | None = None
    batch: int | None = None
    samples: float = float("nan")


@dataclass(frozen=True, slots=True)
class History:
    """Past runs of m jobs on the same n candidates.

    jobs: names of the m jobs.
    candidates: the n candidates.
    time_s: duration of each run, s, float64[m, n]; NaN where a job was not run.
    cost_usd: cost of each run, US$, float64[m, n]; NaN where a job was not run.
    ok: whether the run succeeded, bool[m, n]; False where there was none and where a run failed, timed out or
        missed its goal (its time is then a lower bound).

    Raises InvariantError if a table has another shape.
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

    def take(self, jobs: Sequence[int] | Whole) -> History:
        """Return the history of the jobs at these positions, in that order."""
        rows = np.asarray(jobs, dtype=np.int64)
        names = tuple(self.jobs[row] for row in rows)
        return History(names, self.candidates, self.time_s[rows], self.cost_usd[rows], self.ok[rows])

    def without(self, job: str) -> History:
        """Return the history of the other jobs."""
        return self.take([row for row, name in enumerate(self.jobs) if name != job])

    def run(self, job: int, candidate: int) -> tuple[float, float, bool]:
        """Return time, cost and success of one run, by the positions of its job and candidate."""
        at = job, candidate
        return float(self.time_s[at]), float(self.cost_usd[at]), bool(self.ok[at])

    def objective(self, by: Objective) -> Real:
        """Return cost_usd or time_s, float64[m, n]."""
        return self.cost_usd if by is Objective.COST else self.time_s
