"""The measurement database: every run of every job that was paid for, in one DuckDB file.

For: importing runs from CSV, adding trials, and the history and trials that recommenders are asked with. Not
for: recommending, nor runs of scenarios (lab.runs.store). A run carries the facts of its cluster and the
price
that was paid, so that no later catalogue changes what was measured. Source: FC² §6 (its store of past runs).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import duckdb
import numpy as np

from control.recommender.model import Candidates, History, Observations, Real, no_observations
from twinbed import StoreError, TraceError

_NUMBERS = ("price_usd_h", "vcpus", "memory_gib", "gpus", "network_bps", "cpu_speed")
_KEY = ("instance", "workers", "batch", "servers", "server_instance")
_PARAMETER = "parameter."
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    job VARCHAR NOT NULL, instance VARCHAR NOT NULL, workers INTEGER NOT NULL, time_s DOUBLE NOT NULL,
    ok BOOLEAN NOT NULL, price_usd_h DOUBLE NOT NULL, vcpus DOUBLE NOT NULL, memory_gib DOUBLE NOT NULL,
    gpus DOUBLE NOT NULL, network_bps DOUBLE, cpu_speed DOUBLE, batch INTEGER, servers INTEGER NOT NULL,
    server_instance VARCHAR NOT NULL, parameters MAP(VARCHAR, DOUBLE) NOT NULL, source VARCHAR NOT NULL
)
"""


def default_path() -> Path:
    """$TWINBED_MEASUREMENTS, else twinbed/measurements.duckdb in the user's data directory."""
    chosen = os.environ.get("TWINBED_MEASUREMENTS")
    if chosen:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "twinbed" / "measurements.duckdb"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job on a cluster.

    time_s: until it ended, failed or was stopped; ok: whether it ended as it should; price_usd_h: of the
    whole cluster, as it was paid; vcpus, memory_gib, gpus, network_bps, cpu_speed: of one worker (None: not
    known); parameters: further settings of the run; source: where the row comes from.
    """

    job: str
    instance: str
    workers: int
    time_s: float
    price_usd_h: float
    vcpus: float
    memory_gib: float
    ok: bool = True
    gpus: float = 0.0
    network_bps: float | None = None
    cpu_speed: float | None = None
    batch: int | None = None
    servers: int = 0
    server_instance: str = ""
    parameters: Mapping[str, float] = field(default_factory=dict)
    source: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two runs of a job runs of the same configuration."""
        return (*(getattr(self, name) for name in _KEY), *sorted(self.parameters.items()))


_COLUMNS = tuple(each.name for each in fields(Run))


class Measurements:
    """The database at `path`, made on the first write. Raises StoreError where it cannot be opened."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_path() if path is None else path

    def add(self, runs: Iterable[Run]) -> int:
        """Adds runs, all or none; returns how many."""
        rows = [tuple(asdict(run)[name] for name in _COLUMNS) for run in runs]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        marks = ", ".join("?" * len(_COLUMNS))
        with self._open(read_only=False) as database:
            database.execute("BEGIN")
            database.execute(_SCHEMA)
            if rows:
                database.executemany(f"INSERT INTO runs ({', '.join(_COLUMNS)}) VALUES ({marks})", rows)
            database.execute("COMMIT")
        return len(rows)

    def runs(self) -> list[Run]:
        """Every run, in the order in which they were added; none where there is no database yet."""
        if not self.path.exists():
            return []
        with self._open(read_only=True) as database:
            rows = database.execute(f"SELECT {', '.join(_COLUMNS)} FROM runs ORDER BY rowid").fetchall()
        return [Run(**dict(zip(_COLUMNS, row, strict=True))) for row in rows]

    def history(self, *, without: str | None = None) -> History | None:
        """The runs of all jobs but one, as a table; None if there is none."""
        return as_history([run for run in self.runs() if run.job != without])

    def _open(self, *, read_only: bool) -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(str(self.path), read_only=read_only)
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise StoreError(f"{self.path}: not a database of measurements, or in use ({reason})") from error


def as_history(runs: Iterable[Run]) -> History | None:
    """Runs as jobs × configurations: the median of those that ended, else the longest that failed."""
    cells: dict[tuple[str, tuple[object, ...]], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.job, run.key), []).append(run)
    if not cells:
        return None
    jobs = list(dict.fromkeys(job for job, _ in cells))
    first = {key: each[0] for (_, key), each in reversed(cells.items())}
    keys = sorted(first, key=repr)
    place = {key: column for column, key in enumerate(keys)}
    time_s, cost = np.full((len(jobs), len(keys)), np.nan), np.full((len(jobs), len(keys)), np.nan)
    ok = np.zeros(time_s.shape, dtype=np.bool_)
    for (job, key), each in cells.items():
        row, column = jobs.index(job), place[key]
        ended = [run for run in each if run.ok]
        ok[row, column] = bool(ended)
        time_s[row, column] = (
            np.median([run.time_s for run in ended]) if ended else max(run.time_s for run in each)
        )
        cost[row, column] = time_s[row, column] / 3600 * np.median([run.price_usd_h for run in ended or each])
    return History(tuple(jobs), _candidates([first[key] for key in keys]), time_s, cost, ok)


def trials_of(job: str, runs: Iterable[Run], candidates: Candidates) -> Observations:
    """The runs of one job that are among the candidates, in order; costs at the price that was paid."""
    found = no_observations()
    for run in runs:
        if run.job != job:
            continue
        row = next((row for row in range(len(candidates)) if _same(run, candidates, row)), None)
        if row is not None:
            found = found.with_trial(row, run.time_s, run.time_s / 3600 * run.price_usd_h, run.ok)
    return found


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
        servers=np.array([run.servers for run in runs], dtype=np.int64),
        server=np.array([run.server_instance for run in runs], dtype=np.str_),
        parameters={name: np.array([run.parameters.get(name, np.nan) for run in runs]) for name in names},
        **numbers,
    )


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def read_csv(path: Path) -> list[Run]:
    """Runs from a CSV file with the columns of Run; `parameter.NAME` is a further setting.

    Needed: job, instance, workers, time_s, price_usd_h, vcpus, memory_gib. Raises TraceError naming row and
    column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            names = reader.fieldnames or []
            rows = list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read ({getattr(error, 'strerror', 'not UTF-8')})") from error
    missing = [name for name in _NEEDED if name not in names]
    unknown = [name for name in names if name not in _READERS and not name.startswith(_PARAMETER)]
    if missing or unknown:
        raise TraceError(
            f"{path}: "
            + "; ".join(
                [f"column {name} is missing" for name in missing]
                + [f"column {name} is unknown" for name in unknown]
            )
            + f"; columns are {', '.join(_READERS)} and {_PARAMETER}NAME"
        )
    return [_parsed(path, number, row) for number, row in enumerate(rows, start=2)]


def _parsed(path: Path, number: int, row: Mapping[str, str]) -> Run:
    values: dict[str, object] = {"source": path.name}
    parameters: dict[str, float] = {}
    for name, text in row.items():
        if name is None or text is None:
            raise TraceError(f"{path}: row {number}: has not as many fields as the header")
        if not text.strip():
            if name in _NEEDED:
                raise TraceError(f"{path}: row {number}, column {name}: is empty")
            continue
        try:
            if name.startswith(_PARAMETER):
                parameters[name.removeprefix(_PARAMETER)] = _finite(text)
            else:
                values[name] = _READERS[name](text.strip())
        except ValueError:
            raise TraceError(f"{path}: row {number}, column {name}: {text!r} is not valid") from None
    return Run(**values, parameters=parameters)  # type: ignore[arg-type]


def _finite(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(text)
    return value


def _positive(text: str) -> float:
    value = _finite(text)
    if value <= 0:
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _truth(text: str) -> bool:
    truths = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in truths:
        raise ValueError(text)
    return truths[text.lower()]


_READERS: dict[str, Callable[[str], object]] = {
    "job": str,
    "instance": str,
    "workers": _count,
    "time_s": _positive,
    "price_usd_h": _positive,
    "vcpus": _positive,
    "memory_gib": _positive,
    "ok": _truth,
    "gpus": _finite,
    "network_bps": _positive,
    "cpu_speed": _positive,
    "batch": _count,
    "servers": int,
    "server_instance": str,
    "source": str,
}
_NEEDED = ("job", "instance", "workers", "time_s", "price_usd_h", "vcpus", "memory_gib")
