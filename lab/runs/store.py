"""The run store: one directory per run with manifest.json and Parquet tables, written whole or not at all.

For: publishing, listing, opening, exporting, removing and querying runs. Not for: computing anything in them
(lab.runs.runner and the pillars), nor for the steps in which a directory appears and disappears
(lab.runs.publishing, which also describes the sharing of a store). A run that cannot be read is named with
the cause, and the others are read.
"""

from __future__ import annotations

import builtins
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lab import kinds
from lab.ask.kind import Kind
from lab.runs import index as indexing
from lab.runs import publishing
from lab.runs.files import own_path
from lab.runs.manifest import checked, completed
from lab.runs.quota import Quota
from lab.runs.shelf import FolderShelf, Shelf
from twinbed import StoreError
from twinbed.text import printable

if TYPE_CHECKING:
    import duckdb

MANIFEST = "manifest.json"
INDEX_FROM = 200
"""Number of runs from which an index is kept. Fewer runs are read as fast as the index."""


def default_root() -> Path:
    """Return $TWINBED_STORE, else twinbed/runs in the user's data directory. Raises StoreError for a URL."""
    chosen = os.environ.get("TWINBED_STORE", "")
    if "://" in chosen:
        raise StoreError(f"TWINBED_STORE={chosen}: expected a folder, not a URL")
    return own_path("TWINBED_STORE", "runs")


@dataclass(frozen=True, slots=True)
class Run:
    """A stored run. path: its directory; manifest: as docs/reference/runs.md describes it."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def id(self) -> str:
        """`<scenario>-<policy>-<10 hex digits>`; the same question has the same id everywhere."""
        return str(self.manifest["id"])

    @property
    def policy(self) -> str:
        """The policy's text form, e.g. `static:factor=1.5`."""
        return str(self.manifest["policy"])

    @property
    def seed(self) -> int:
        """The seed of the run's random numbers."""
        return int(self.manifest["seed"])

    @property
    def kind(self) -> Kind:
        """The kind of question that it answers."""
        kind = kinds.of_manifest(self.manifest)
        assert kind is not None, "checked when the manifest is read"
        return kind

    @property
    def metrics(self) -> dict[str, float]:
        """The run's metrics: key of its kind's metrics → value, NaN if it does not apply or was not known."""
        known = dict.fromkeys((metric.key for metric in self.kind.metrics()), float("nan"))
        return known | {key: value for key, value in self.manifest["metrics"].items() if value is not None}

    @property
    def censored(self) -> frozenset[str]:
        """Keys of the metrics whose value in `metrics` is a lower bound."""
        return frozenset(self.manifest.get("censored", ()))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables."""
        kind, stored = self.kind, self.manifest["tables"]
        return tuple(name for name in (*kind.tables, *kind.optional_tables) if name in stored)

    def table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Return a table, or some of its columns. Raises StoreError if it cannot be read."""
        if name not in self.tables:
            raise StoreError(f"run {self.id}: no table {name!r}; there are {', '.join(self.tables)}")
        file = self.path / f"{name}.parquet"
        try:
            return pq.read_table(file, columns=columns, memory_map=False)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{file}: cannot be read: {_one_line(error)}") from None

    def frame(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Return `table` as a DataFrame."""
        frame: pd.DataFrame = self.table(name, columns).to_pandas()
        return frame

    def measured_bytes(self) -> int:
        """Return the size of its files, for a manifest that does not state it; 0 if they are gone."""
        try:
            return sum(file.stat().st_size for file in self.path.iterdir())
        except OSError:
            return 0

    def verify(self) -> list[str]:
        """Return a line for each table that differs from the manifest's checksum."""
        problems = []
        for name, sha256 in self.manifest["tables"].items():
            file = self.path / f"{name}.parquet"
            try:
                if publishing.sha256_of(file) != sha256:
                    problems.append(f"{file}: content differs from the manifest")
            except FileNotFoundError:
                problems.append(f"{file}: missing")
            except OSError as error:
                problems.append(f"{file}: cannot be read: {_one_line(error)}")
        return problems


class Answer(NamedTuple):
    """A query's answer. problems: one line for each omitted run, `NAME: problem`."""

    frame: pd.DataFrame
    problems: tuple[str, ...]


class RunStore:
    """All runs under one root directory, by default `default_root()`. It is created by the first run.

    Opening a store removes the leftovers of dead writers. Several processes may use a store at once.
    location: argument with which lab.runs.stores.store_at opens the same store in any process of this
    machine.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()
        self.location = str(self.root.absolute())
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(f"{self.root}: not a directory, so no run store; name another --store")
        publishing.sweep(self.root)
        self.quota = Quota(self)

    def __repr__(self) -> str:
        return f"Store({self.location!r})"

    def runs(self) -> Iterator[Run]:
        """Yield all healthy runs, sorted by id."""
        return (run for _, run, _ in self._scan() if run is not None)

    def ids(self) -> list[str]:
        """Return the sorted ids of all healthy runs."""
        return [run.id for run in self.runs()]

    def names(self) -> list[str]:
        """Return the sorted names of all directories that may be a run, without reading any."""
        try:
            return sorted(entry.name for entry in os.scandir(self.root) if not entry.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self.root}: cannot be listed: {_one_line(error)}") from None

    def open_all(self, run_ids: Sequence[str]) -> list[Run]:
        """Return the runs with exactly these ids. Raises StoreError if one does not exist."""
        try:
            return [self._read(run_id) for run_id in run_ids]
        except StoreError:
            gone = [run_id for run_id in run_ids if not (self.root / run_id).exists()]
            if not gone:
                raise
            cure = "a worker of another machine needs a --store that both reach: a shared folder, or a URL"
            raise StoreError(f"{self.location}: there is no run {gone[0]}; {cure}") from None

    def shelf(self, name: str) -> Shelf:
        """Return the shelf of this name beside the runs. No run has a name that begins with a dot."""
        return FolderShelf(self.root / name)

    def find(self, run_id: str) -> Run | None:
        """Return the healthy run with exactly this id, None if there is none."""
        try:
            return self._read(run_id)
        except StoreError:
            return None

    def has(self, run_id: str) -> bool:
        """Return whether there is a healthy run with exactly this id."""
        return self.find(run_id) is not None

    def list(self) -> pd.DataFrame:
        """Return one row per run, newest first: id, name, policy, seed, created_at, the metrics, bytes,
        censored, problem.

        bytes: size of its files; censored: keys of the metrics that are lower bounds, separated by spaces. A
        directory that is no run or a damaged run has a row, too: its name as id, and the error as `problem`,
        which is empty for healthy runs.
        """
        return indexing.shown(self._listing())

    def open(self, run_id: str) -> Run:
        """Return the run with this id, or the only one whose id begins with it. Raises StoreError."""
        if run_id and Path(run_id).name == run_id and self._stands(run_id):
            return self._read(run_id)
        # A run's folder has its id as its name, so the manifests of all other runs need not be read.
        names = [name for name in self._visible() if run_id and name.startswith(run_id)]
        matches = [run for _, run, _ in self._scan(names) if run is not None]
        if len(matches) != 1:
            problem, cure = "there is no such run", "twinbed runs list shows which there are"
            if matches:
                some = ", ".join(run.id for run in matches[:3]) + (", …" if len(matches) > 3 else "")
                problem, cure = f"{len(matches)} runs begin so", f"write more of the id: {some}"
            raise StoreError(f"run {run_id!r}: {problem} in {self.location}; {cure}")
        return matches[0]

    def whole_id(self, run_id: str) -> str:
        """Return the id of a run that `open` finds, or of a damaged one by its whole id, whose folder has a
        manifest and nothing but Parquet files beside it. Raises StoreError."""
        damaged = Path(run_id).name == run_id and self._stands(run_id) and not self.has(run_id)
        return run_id if damaged and self._endings(run_id) <= {".json", ".parquet"} else self.open(run_id).id

    def remove(self, run_id: str) -> None:
        """Delete a run, as `whole_id` finds it. Raises StoreError if it cannot be deleted."""
        path = self.root / self.whole_id(run_id)
        try:
            publishing.retire(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be removed: {_one_line(error)}") from None

    def export(self, run_id: str, path: str | Path) -> Path:
        """Copy a run to `path`, which must not exist: a zip file if it ends in .zip, else a directory.

        The copy is one whole run, also if the run is replaced or removed meanwhile.
        """
        run, target = self.open(run_id), Path(path)
        if target.exists():
            raise StoreError(f"{target}: exists already; remove it, or name another path")
        beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
        with ExitStack() as stack:
            try:
                files = publishing.opened(run.path, stack)
            except OSError as error:
                raise StoreError(f"{run.path}: cannot be read: {_one_line(error)}") from None
            try:
                if target.suffix == ".zip":
                    with zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
                        for name, file in files.items():
                            with archive.open(f"{run.id}/{name}", "w", force_zip64=True) as copy:
                                shutil.copyfileobj(file, copy)
                else:
                    beside.mkdir()
                    for name, file in files.items():
                        with (beside / name).open("xb") as copy:
                            shutil.copyfileobj(file, copy)
                beside.rename(target)
            except OSError as error:
                raise StoreError(f"{target}: cannot be written: {_one_line(error)}") from None
            finally:
                publishing.discard(beside)
        return target

    def query(self, sql: str) -> Answer:
        """Return DuckDB's answer to a query over all healthy runs.

        There is a view per table, over the runs that have it, with the column `run` for the id, and the view
        `runs` with the columns of `list`. Runs that cannot be read are left out and named. If DuckDB fails,
        runs whose tables differ from their manifest are left out, too. Raises StoreError with the first line
        of DuckDB's error.
        """
        import duckdb

        from lab.runs.query import MISTAKES, answered, tables_of

        listing = self._listing()
        bad = listing["problem"] != ""
        problems = [f"{row.id}: {row.problem}" for row in listing[bad].itertuples()]
        listing = listing[~bad]
        if listing.empty:
            raise StoreError(f"{self.location}: no runs to query; make one, or name another --store")
        try:
            return Answer(answered(sql, listing, self._table_file, self._prepare), tuple(problems))
        except duckdb.Error as error:
            if isinstance(error, MISTAKES) or not tables_of(sql):
                raise StoreError(f"query: {_one_line(error)}") from None
            damage = {run.id: run.verify() for run in self.open_all(list(listing["id"]))}
            whole = listing[[not damage[run_id] for run_id in listing["id"]]]
            if whole.empty or len(whole) == len(listing):
                raise StoreError(f"query: {_one_line(error)}") from None
        problems += [f"{name}: {lines[0]}" for name, lines in damage.items() if lines]
        try:
            return Answer(answered(sql, whole, self._table_file, self._prepare), tuple(problems))
        except duckdb.Error as error:
            raise StoreError(f"query: {_one_line(error)}") from None

    def sweep(self, older_s: float) -> int:
        """Remove leftovers of writers that died at least older_s ago, and return the number of leftovers."""
        return publishing.sweep(self.root, older_s)

    def publish(self, manifest: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Run:
        """Write a run under manifest["id"], replacing a run of the same id, and return it.

        tables: all tables that its kind requires, by name. The manifest gains their SHA-256 and bytes. On any
        failure, and on KeyboardInterrupt, nothing is left behind. An OSError (a full disk) becomes a
        StoreError that names the path.
        """
        run_id = str(manifest["id"])
        kind = kinds.of_manifest(manifest)
        assert kind is not None
        working = publishing.Working(self.root, run_id)
        try:
            working.make()
            names = (*kind.tables, *(name for name in kind.optional_tables if name in tables))
            files = {name: working.folder / f"{name}.parquet" for name in names}
            sums = {name: publishing.write_table(file, tables[name]) for name, file in files.items()}
            full, text = completed(manifest, sums, sum(file.stat().st_size for file in files.values()))
            publishing.write_file(working.folder / MANIFEST, text)
            self.quota.claim(full["bytes"])
            working.install()
        except OSError as error:
            raise StoreError(f"{self.root / run_id}: cannot be written: {_one_line(error)}") from None
        finally:
            working.discard()
        return Run(self.root / run_id, full)

    def _scan(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Run | None, str]]:
        """Yield each visible directory by its printable name: as a run, or with its error. Raises StoreError
        if the root cannot be listed.

        names: names of the directories to read; None: all.
        """
        for name in self._visible() if names is None else names:
            try:
                yield name, self._read(name), ""
            except StoreError as error:
                yield printable(name), None, printable(str(error).removeprefix(f"{self.root / name}: "))

    def _visible(self) -> builtins.list[str]:
        """Return the sorted names in the root at a moment at which none changes."""
        with publishing.settled(self.root):
            return self.names()

    def _listing(self) -> pd.DataFrame:
        """Return one row for each visible directory; see lab.runs.index. Directories without a run have id
        and problem."""
        names = self._visible()
        index = indexing.Index(self.shelf(indexing.SHELF))
        # Taken before the manifests are read, so that a manifest that changes later is read again.
        stamps = indexing.stamps(self.root, names, MANIFEST)
        files = index.files() if len(names) >= INDEX_FROM else []
        known = index.read(files)
        ids = known["id"].tolist()
        present = np.array([stamps.get(run_id, 0) for run_id in ids], np.int64)
        known = known[present == known["stamp"].to_numpy(np.int64)]
        there = set(known["id"].tolist())
        rows = [
            # Every row has a whole number as its stamp. Beside NaN, the others would lose digits.
            indexing.row_of(run, stamps[name]) if run else indexing.unread(self.root / name, problem)
            for name, run, problem in self._scan([name for name in names if name not in there])
        ]
        lasting = sum(row["stamp"] != 0 for row in rows)
        frame = indexing.together([known.assign(problem="")], rows)
        if len(names) >= INDEX_FROM and lasting * 20 > len(names):
            healthy = frame[frame["problem"].eq("") & frame["stamp"].ne(0)]
            index.write(healthy.astype({"stamp": "int64", "seed": "int64"}), files)
        return frame

    def _prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let DuckDB read the store's files."""

    def _table_file(self, run_id: str, stored: str) -> str:
        """Return the path or URL of a run's table, NAME.HASH, for DuckDB. Its folder has the run's name."""
        return f"{self.root}/{run_id}/{stored.partition('.')[0]}.parquet"

    def _endings(self, run_id: str) -> set[str]:
        """Return what the names of a run's files end with."""
        return {file.suffix for file in (self.root / run_id).iterdir()}

    def _stands(self, run_id: str) -> bool:
        """Return whether there is a manifest of exactly this id."""
        return (self.root / run_id / MANIFEST).is_file()

    def _read(self, run_id: str) -> Run:
        """Return the run with exactly this id. Raises StoreError."""
        path = self.root / run_id
        try:
            return _read_run(path)
        except StoreError:
            # The run may have been replaced at this moment.
            with publishing.settled(self.root):
                return _read_run(path)


def _read_run(path: Path) -> Run:
    try:
        text = (path / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise StoreError(f"{path}: not a run: it has no {MANIFEST}; move it elsewhere") from None
    except NotADirectoryError:
        raise StoreError(f"{path}: not a run: a file; move it elsewhere") from None
    except OSError as error:
        raise StoreError(f"{path}: {MANIFEST} cannot be read: {_one_line(error)}") from None
    manifest, kind = manifest_of(text, str(path), path.name)
    wanted = dict.fromkeys((*kind.tables, *manifest["tables"]))
    absent = [name for name in wanted if not os.access(path / f"{name}.parquet", os.R_OK)]
    if absent:
        raise StoreError(f"{path}: tables missing: {', '.join(absent)}; remove the run and make it again")
    return Run(path, manifest)


def manifest_of(text: bytes, where: str, name: str) -> tuple[Mapping[str, Any], Kind]:
    """Return the manifest in a file, with its time in UTC, and its kind.

    Raises StoreError that begins with `where` unless it is the manifest of the run `name`.
    """
    try:
        manifest = checked(text)
        made = datetime.fromisoformat(manifest["created_at"]).astimezone(UTC)
    except (StoreError, OverflowError) as error:
        raise StoreError(f"{where}: {MANIFEST}: {error}; twinbed runs rm {name} removes it") from None
    if manifest["id"] != name:
        raise StoreError(f"{where}: its manifest says it is {manifest['id']}")
    kind = kinds.of_manifest(manifest)
    if kind is None:
        raise StoreError(f"{where}: its conditions are of no kind that is known here; update twinbed")
    # Lists compare times as text, so all have the zone and the form that twinbed writes.
    return {**manifest, "created_at": made.isoformat(timespec="milliseconds")}, kind


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    # Arrow and DuckDB quote the file's own bytes.
    return printable(str(error).strip().split("\n", 1)[0])
