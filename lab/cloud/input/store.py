"""The measurement database: every paid run of every job, in one DuckDB file.

For: importing runs from CSV, adding trials, and the history and trials of a recommender's request. Not for:
recommending, nor runs of scenarios (lab.runs.store). A run carries the sizes of its cluster and the price
that was paid, so that a later catalogue does not change it. Source: FC² (Ta, Cluster Computing 22, 2019) §6
(its store of past runs).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

import duckdb
import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from control.jobs import Candidates, Flags, History, Job, Real
from control.recommender.ports import Observations, no_observations
from lab.runs.files import own_path
from traces import rows as table
from twinbed import StoreError, TraceError

_NUMBERS = ("price_usd_h", "vcpus", "memory_gib", "gpus", "network_bps", "cpu_speed")
_KEY = ("instance", "workers", "batch", "servers", "server_instance")
_PARAMETER = "parameter."
"""Beginning of a CSV column that holds a further setting."""
_FURTHER = re.compile(rf"{re.escape(_PARAMETER)}.+")
_LARGEST = 1e15
"""Largest number of a run, in any unit, so that costs do not overflow."""
_IN_USE_S, _LOOK_S = 10.0, 0.05
"""Time for which a database that another process uses is tried again, and between two tries, s. A paid trial
would be lost otherwise."""
_Finite = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
_Positive = Annotated[float, Field(gt=0, le=_LARGEST)]
_Count = Annotated[int, Field(ge=1, le=1_000_000)]
_CURE = "twinbed measurements import makes one from a CSV"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    job VARCHAR NOT NULL, instance VARCHAR NOT NULL, workers INTEGER NOT NULL, time_s DOUBLE NOT NULL,
    ok BOOLEAN NOT NULL, price_usd_h DOUBLE NOT NULL, vcpus DOUBLE NOT NULL, memory_gib DOUBLE NOT NULL,
    gpus DOUBLE NOT NULL, network_bps DOUBLE, cpu_speed DOUBLE, batch INTEGER, servers INTEGER NOT NULL,
    server_instance VARCHAR NOT NULL, parameters MAP(VARCHAR, DOUBLE) NOT NULL, source VARCHAR NOT NULL
);
ALTER TABLE runs ADD COLUMN IF NOT EXISTS use_bps DOUBLE;
ALTER TABLE runs ADD COLUMN IF NOT EXISTS noise DOUBLE
"""


def default_path() -> Path:
    """Return $TWINBED_MEASUREMENTS, else twinbed/measurements.duckdb in the user's data folder."""
    return own_path("TWINBED_MEASUREMENTS", "measurements.duckdb")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job on a cluster; the constraints hold for runs that are read from CSV.

    job: name of the job.
    instance, workers: type and number of its workers.
    time_s: time until it ended, failed or was stopped, s.
    price_usd_h: price of the whole cluster that was paid, US$/h.
    vcpus, memory_gib, gpus, network_bps, cpu_speed: size of one worker; None means not known.
    ok: whether it succeeded.
    batch: samples per worker and step, None for the job's own.
    servers, server_instance: number and type of parameter servers.
    parameters: further settings of the run.
    use_bps: bandwidth of the server's port that the worker used, bit/s, in a run with one worker and one
        server; None means not measured.
    noise: noise scale of the gradients, samples; None means not measured.
    source: where the row comes from.
    """

    job: str
    instance: str
    workers: _Count
    time_s: _Positive
    price_usd_h: _Positive
    vcpus: _Positive
    memory_gib: _Positive
    ok: bool = True
    gpus: Annotated[float, Field(ge=0, le=_LARGEST)] = 0.0
    network_bps: _Positive | None = None
    cpu_speed: _Positive | None = None
    batch: _Count | None = None
    servers: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    server_instance: str = ""
    parameters: Mapping[str, _Finite] = field(default_factory=dict)
    use_bps: _Positive | None = None
    noise: _Positive | None = None
    source: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """Return the values that runs of a job on the same configuration have in common."""
        return (*(getattr(self, name) for name in _KEY), *sorted(self.parameters.items()))


_COLUMNS = tuple(column.name for column in fields(Run))
_NEEDED = ("job", "instance", "workers", "time_s", "price_usd_h", "vcpus", "memory_gib")
_IN_CSV = tuple(name for name in _COLUMNS if name != "parameters")
_RUN = TypeAdapter(Run)


class Measurements:
    """The database at `path`, created by the first write. Raises StoreError if it cannot be opened."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_path() if path is None else path

    def add(self, runs: Iterable[Run]) -> int:
        """Add all runs or none, and return their number."""
        rows = [tuple(getattr(run, name) for name in _COLUMNS) for run in runs]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        marks = ", ".join("?" * len(_COLUMNS))
        with self._open(read_only=False) as database:
            database.execute("BEGIN")
            database.execute(_SCHEMA)
            if rows:
                database.executemany(f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks})", rows)
            database.execute("COMMIT")
        return len(rows)

    def add_new(self, runs: Iterable[Run]) -> int:
        """Add the runs that are not stored already, from any file, and return their number. A run that is
        given twice is stored twice."""
        stored, new = Counter(map(_content, self.runs())), []
        for run in runs:
            stored[_content(run)] -= 1
            if stored[_content(run)] < 0:
                new.append(run)
        return self.add(new)

    def runs(self) -> list[Run]:
        """Return all runs in the order in which they were added; none if there is no database yet."""
        if not self.path.exists():
            return []
        with self._open(read_only=True) as database:
            try:
                cursor = database.execute("SELECT * FROM runs ORDER BY rowid")
                # Columns that came later are missing until something is added.
                names = [column[0] for column in cursor.description or ()]
                rows = cursor.fetchall()
            except duckdb.Error as error:
                raise StoreError(f"{self.path}: not a database of measurements ({_reason(error)})") from error
        return [Run(**dict(zip(names, row, strict=True))) for row in rows]

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        # DuckDB opens a CSV file or another table in memory, where runs that are added would be lost.
        if _is_foreign(self.path):
            raise StoreError(f"{self.path}: not a database of measurements; {_CURE}")
        until_s = time.monotonic() + _IN_USE_S
        while True:
            try:
                return duckdb.connect(str(self.path), read_only=read_only)
            except duckdb.Error as error:
                if "lock" in str(error) and time.monotonic() < until_s:
                    time.sleep(_LOOK_S)
                    continue
                raise StoreError(
                    f"{self.path}: not a database of measurements, or in use ({_reason(error)}); {_CURE}"
                ) from error


def _is_foreign(path: Path) -> bool:
    """Return whether there is a file that is no database of DuckDB, whose bytes 8 to 11 are DUCK."""
    head = b""
    if path.is_file():
        with suppress(OSError), path.open("rb") as file:
            head = file.read(12)
    return bool(head) and head[8:] != b"DUCK"


def _content(run: Run) -> str:
    return repr(replace(run, source=""))


def _reason(error: duckdb.Error) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def as_history(runs: Iterable[Run]) -> History | None:
    """Return jobs × configurations, None without a run.

    A cell holds the median of the successful runs, else the longest failed one.
    """
    cells: dict[tuple[str, tuple[object, ...]], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.job, run.key), []).append(run)
    if not cells:
        return None
    jobs = {job: row for row, job in enumerate(dict.fromkeys(job for job, _ in cells))}
    first = {key: cell[0] for (_, key), cell in reversed(cells.items())}
    keys = sorted(first, key=repr)
    place = {key: column for column, key in enumerate(keys)}
    time_s, cost = np.full((len(jobs), len(keys)), np.nan), np.full((len(jobs), len(keys)), np.nan)
    ok = np.zeros(time_s.shape, dtype=np.bool_)
    for (job, key), cell in cells.items():
        at = jobs[job], place[key]
        ended = [run for run in cell if run.ok]
        ok[at] = bool(ended)
        time_s[at] = np.median([run.time_s for run in ended]) if ended else max(run.time_s for run in cell)
        cost[at] = time_s[at] / 3600 * np.median([run.price_usd_h for run in ended or cell])
    return History(tuple(jobs), _candidates([first[key] for key in keys]), time_s, cost, ok)


def network_use(job: str, batch: int | None, runs: Iterable[Run]) -> dict[str, float]:
    """Return FC²'s b_t by type, bit/s: medians over the job's runs with one server and one worker.

    batch: the job's own batch size; runs with another one use another share of the port and do not count.
    """
    measured: dict[str, list[float]] = {}
    for run in runs:
        alone = run.job == job and run.workers == 1 and run.servers == 1 and run.ok
        if alone and run.use_bps is not None and run.batch in (None, batch):
            measured.setdefault(run.instance, []).append(run.use_bps)
    return {name: float(np.median(values)) for name, values in measured.items()}


def trials_of(job: str, runs: Iterable[Run], candidates: Candidates) -> Observations:
    """Return the runs of one job on any of the candidates, in order, with the costs that were paid."""
    trials = no_observations()
    for run in runs:
        if run.job != job:
            continue
        row = next((row for row in range(len(candidates)) if _same(run, candidates, row)), None)
        if row is not None:
            cost_usd = run.time_s / 3600 * run.price_usd_h
            trials = trials.with_trial(row, run.time_s, cost_usd, run.ok, _number(run.noise))
    return trials


def of_own_batch(job: Job, runs: Iterable[Run], *, stated: bool) -> list[Run]:
    """Return the runs. Those of the job with its own batch size have it if it is `stated`, else None, as
    candidates do."""
    given, meant = (None, job.batch) if stated else (job.batch, None)
    return [replace(run, batch=meant) if (run.job, run.batch) == (job.name, given) else run for run in runs]


def told_of(job: Job, runs: Sequence[Run], gpus: Flags, *, own: bool) -> Flags:
    """Return the candidates of which the runs tell, bool[n]: those with GPUs, those without, or all.

    Runs without GPUs tell nothing of those with GPUs, and the reverse, unless a job ran on both. gpus:
    whether a candidate has GPUs, bool[n]. own: whether only the job's own runs count.
    """
    sides: dict[str, set[bool]] = {}
    for run in runs:
        if run.ok and (run.job == job.name or not own):
            sides.setdefault(run.job, set()).add(run.gpus > 0)
    past = set().union(*sides.values(), [False] * (job.local_run is not None))
    known = sides.get(job.name) or past or {False}
    if len(known) == 2 or any(len(side) == 2 for side in sides.values()):
        return np.ones_like(gpus)
    return gpus if True in known else ~gpus


def _same(run: Run, candidates: Candidates, row: int) -> bool:
    batch = candidates.batch[row]
    return bool(
        candidates.name[row] == run.instance
        and candidates.count[row] == run.workers
        and candidates.servers[row] == run.servers
        and candidates.server[row] == run.server_instance
        and (run.batch is None if np.isnan(batch) else run.batch == batch)
        and all(values[row] == run.parameters.get(name) for name, values in candidates.parameters.items())
    )


def _candidates(runs: list[Run]) -> Candidates:
    names = sorted({name for run in runs for name in run.parameters})
    numbers: dict[str, Real] = {
        name: np.array([_number(getattr(run, name)) for run in runs], dtype=np.float64) for name in _NUMBERS
    }
    return Candidates(
        name=np.array([run.instance for run in runs], dtype=np.str_),
        count=np.array([run.workers for run in runs], dtype=np.int64),
        batch=np.array([_number(run.batch) for run in runs], dtype=np.float64),
        disk_gib=np.full(len(runs), np.nan),
        servers=np.array([run.servers for run in runs], dtype=np.int64),
        server=np.array([run.server_instance for run in runs], dtype=np.str_),
        parameters={name: np.array([run.parameters.get(name, np.nan) for run in runs]) for name in names},
        **numbers,
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def read_csv(path: Path) -> list[Run]:
    """Return the runs of a CSV file with the columns of Run; `parameter.NAME` is a further setting.

    The columns job, instance, workers, time_s, price_usd_h, vcpus and memory_gib are needed. Raises
    TraceError naming row and column.
    """
    names, rows = table.read(path)
    missing = [name for name in _NEEDED if name not in names]
    unknown = [name for name in names if name not in _IN_CSV and not _FURTHER.fullmatch(name)]
    if missing or unknown:
        raise TraceError(
            f"{path}: "
            + "; ".join(
                [f"column {name} is missing" for name in missing]
                + [f"column {name or repr(name)} is unknown" for name in unknown]
            )
            + f"; columns are {', '.join(_IN_CSV)} and {_PARAMETER}NAME"
        )
    runs = [_parsed(path, number, row) for number, row in rows]
    if not runs:
        raise TraceError(f"{path}: a header without rows; add a row for each run")
    return runs


def _parsed(path: Path, number: int, row: Mapping[str, str]) -> Run:
    filled = {name: text.strip() for name, text in row.items() if text.strip()}
    values: dict[str, object] = {"source": path.name}
    values |= {name: text for name, text in filled.items() if name in _IN_CSV}
    values["parameters"] = {
        name.removeprefix(_PARAMETER): text for name, text in filled.items() if name not in _IN_CSV
    }
    try:
        run = _RUN.validate_python(values)
    except ValidationError as error:
        problem = error.errors()[0]
        column = problem["loc"][0] if len(problem["loc"]) == 1 else f"{_PARAMETER}{problem['loc'][1]}"
        wrong = f"{problem['input']!r}: {problem['msg']}"
        if problem["type"] == "missing":
            wrong = "is empty" + "; of a run that failed, give the time until then" * (column == "time_s")
        raise TraceError(f"{path}: row {number}, column {column}: {wrong}") from None
    if run.servers and not run.server_instance:
        wrong = f"column server_instance: is empty; name the type of the {run.servers} servers"
    elif run.server_instance and not run.servers:
        wrong = f"column servers: is 0; give the number of servers of type {run.server_instance}"
    else:
        return run
    raise TraceError(f"{path}: row {number}, {wrong}")
