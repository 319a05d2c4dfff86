"""The run store: one directory per run with manifest.json and Parquet tables, written whole or not at all.

For: publishing, listing, opening, exporting, removing and querying runs. Not for: computing anything in
them (lab.runs.runner and the pillars). A run is written to a hidden directory in the same root, every file
and the directory are synced, and the directory is renamed. So a reader never sees half a run, whatever
breaks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lab import kinds
from lab.ask.kind import Kind
from twinbed import StoreError

MANIFEST = "manifest.json"
SCHEMA = 1
_TEMPORARY = re.compile(r"^\.(?P<kind>new|old)-(?P<pid>\d+)-[0-9a-f]+-(?P<id>.+)$")
_LIST_COLUMNS = ("id", "name", "policy", "seed", "created_at")


def default_root() -> Path:
    """Return $TWINBED_STORE, else twinbed/runs in the user's data directory."""
    chosen = os.environ.get("TWINBED_STORE")
    if chosen:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "twinbed" / "runs"


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
        """The run's metrics: key of its kind's metrics → value, NaN where it has no meaning."""
        stored: dict[str, float | None] = self.manifest["metrics"]
        return {key: float("nan") if value is None else value for key, value in stored.items()}

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables."""
        kind = self.kind
        return tuple(
            name for name in (*kind.tables, *kind.optional_tables) if name in self.manifest["tables"]
        )

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

    def verify(self) -> list[str]:
        """Return a line for each table that differs from the manifest's checksum."""
        problems = []
        for name, sha256 in self.manifest["tables"].items():
            file = self.path / f"{name}.parquet"
            if not file.is_file():
                problems.append(f"{file}: missing")
            elif _sha256(file) != sha256:
                problems.append(f"{file}: content differs from the manifest")
        return problems


class RunStore:
    """All runs under one root directory, by default `default_root()`. It is created by the first run.

    Opening a store removes what writers that died left behind. Several processes may use a store at once.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = Path(root) if root is not None else default_root()
        if self.root.exists() and not self.root.is_dir():
            raise StoreError(f"{self.root}: not a directory, so no run store")
        self._sweep()

    def ids(self) -> list[str]:
        """Return the sorted ids of all healthy runs."""
        return [run.id for run, _ in self._scan() if run is not None]

    def has(self, run_id: str) -> bool:
        """Return whether there is a healthy run with exactly this id."""
        try:
            _read_run(self.root / run_id)
        except StoreError:
            return False
        return True

    def list(self) -> pd.DataFrame:
        """Return one row per run, newest first: id, name, policy, seed, created_at, the metrics, problem.

        A directory that is no run or a damaged run has a row too: its name as id, and what is wrong as
        `problem`, which is empty for healthy runs.
        """
        rows: list[dict[str, Any]] = []
        for run, problem in self._scan():
            if run is None:
                name, _, reason = problem.partition(": ")
                rows.append({"id": name, "problem": reason})
            else:
                head = {key: run.manifest[key] for key in _LIST_COLUMNS}
                rows.append(head | run.metrics | {"problem": ""})
        metrics = [key for row in rows for key in row if key not in (*_LIST_COLUMNS, "problem")]
        frame = pd.DataFrame(rows, columns=[*_LIST_COLUMNS, *dict.fromkeys(metrics), "problem"])
        return frame.sort_values(["created_at", "id"], ascending=[False, True], ignore_index=True)

    def open(self, run_id: str) -> Run:
        """Return the run with this id, or the only one whose id begins with it. Raises StoreError if there
        is none."""
        if run_id and (self.root / run_id / MANIFEST).is_file() and Path(run_id).name == run_id:
            return _read_run(self.root / run_id)
        matches = [run for run, _ in self._scan() if run is not None and run.id.startswith(run_id)]
        if len(matches) != 1:
            problem = f"{len(matches)} runs begin so" if matches else "there is no such run"
            raise StoreError(f"run {run_id!r}: {problem} in {self.root}")
        return matches[0]

    def remove(self, run_id: str) -> None:
        """Delete a run. Raises StoreError if there is none or it cannot be deleted."""
        run = self.open(run_id)
        gone = self._temporary("old", run.id)
        try:
            with self._lock():
                run.path.rename(gone)
            shutil.rmtree(gone)
        except OSError as error:
            raise StoreError(f"{run.path}: cannot be removed: {_one_line(error)}") from None

    def export(self, run_id: str, path: str | Path) -> Path:
        """Copy a run to `path`, which must not exist: a zip file if it ends in .zip, else a directory."""
        run, target = self.open(run_id), Path(path)
        if target.exists():
            raise StoreError(f"{target}: exists already; a run is not exported over it")
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            if target.suffix == ".zip":
                with zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED) as archive:
                    for file in sorted(run.path.iterdir()):
                        archive.write(file, f"{run.id}/{file.name}")
            else:
                beside.mkdir()
                shutil.copytree(run.path, beside, dirs_exist_ok=True)
            beside.rename(target)
        except OSError as error:
            raise StoreError(f"{target}: cannot be written: {_one_line(error)}") from None
        finally:
            _discard(beside)
        return target

    def query(self, sql: str) -> pd.DataFrame:
        """Return DuckDB's answer to a query over all healthy runs.

        There is a view per table, over the runs that have it, with the column `run` for the id, and the
        view `runs` with what `list` shows. Raises StoreError with the first line of DuckDB's error.
        """
        runs = [run for run, _ in self._scan() if run is not None]
        if not runs:
            raise StoreError(f"{self.root}: no runs to query")
        with duckdb.connect() as connection:
            for name in kinds.tables():
                files = [str(run.path / f"{name}.parquet") for run in runs if name in run.tables]
                if not files:
                    continue
                quoted = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
                connection.execute(
                    f"CREATE VIEW {name} AS SELECT parse_path(filename)[-2] AS run, * EXCLUDE (filename) "
                    f"FROM read_parquet([{quoted}], filename = true)"
                )
            listing = self.list()
            connection.register("runs", listing[listing["problem"] == ""].drop(columns="problem"))
            try:
                return connection.execute(sql).df()
            except duckdb.Error as error:
                raise StoreError(f"query: {_one_line(error)}") from None

    def publish(self, manifest: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Run:
        """Write a run under manifest["id"], replacing a run of the same id, and return it.

        tables: by name, all that its kind requires. The manifest gains their SHA-256. On any failure, and
        on KeyboardInterrupt, nothing is left behind. An OSError (a full disk) becomes a StoreError that
        names the path.
        """
        run_id = str(manifest["id"])
        temporary = self._temporary("new", run_id)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            kind = kinds.of_manifest(manifest)
            assert kind is not None
            names = (*kind.tables, *(name for name in kind.optional_tables if name in tables))
            sums = {name: write_table(temporary / f"{name}.parquet", tables[name]) for name in names}
            full = {**manifest, "tables": sums}
            text = json.dumps(full, indent=1, allow_nan=False) + "\n"
            _write_file(temporary / MANIFEST, text.encode())
            _sync(temporary)
            self._install(temporary, self.root / run_id)
        except OSError as error:
            raise StoreError(f"{self.root / run_id}: cannot be written: {_one_line(error)}") from None
        finally:
            _discard(temporary)
        return Run(self.root / run_id, full)

    def _install(self, temporary: Path, target: Path) -> None:
        with self._lock():
            aside = self._temporary("old", target.name)
            replaced = target.exists()
            if replaced:
                target.rename(aside)
            temporary.rename(target)
            _sync(self.root)
        if replaced:
            _discard(aside)

    def _temporary(self, kind: str, run_id: str) -> Path:
        return self.root / f".{kind}-{os.getpid()}-{secrets.token_hex(4)}-{run_id}"

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one process at a time rename. The kernel releases the lock if its holder dies."""
        with (self.root / ".lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _sweep(self) -> None:
        """Remove temporary directories of dead writers; one that holds the only copy of a run goes back."""
        if not self.root.is_dir():
            return
        for entry in self.root.iterdir():
            match = _TEMPORARY.match(entry.name)
            if match is None or _alive(int(match["pid"])):
                continue
            home = self.root / match["id"]
            if match["kind"] == "old" and not home.exists() and (entry / MANIFEST).is_file():
                with contextlib.suppress(OSError):
                    entry.rename(home)
            else:
                _discard(entry)

    def _scan(self) -> Iterator[tuple[Run | None, str]]:
        """Yield each visible directory, by name, as a run or as the text `NAME: what is wrong with it`."""
        if not self.root.is_dir():
            return
        for entry in sorted(self.root.iterdir()):
            if entry.name.startswith("."):
                continue
            try:
                yield _read_run(entry), ""
            except StoreError as error:
                yield None, f"{entry.name}: {str(error).removeprefix(f'{entry}: ')}"


def _read_run(path: Path) -> Run:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise StoreError(f"{path}: not a run: it has no {MANIFEST}") from None
    except NotADirectoryError:
        raise StoreError(f"{path}: not a run: a file") from None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {MANIFEST} cannot be read: {_one_line(error)}") from None
    keys = {"schema", "metrics", "tables", *_LIST_COLUMNS}
    missing = sorted(keys - set(manifest)) if isinstance(manifest, dict) else sorted(keys)
    if missing:
        raise StoreError(f"{path}: {MANIFEST} lacks {', '.join(missing)}")
    if manifest["schema"] != SCHEMA:
        raise StoreError(f"{path}: schema {manifest['schema']} is not {SCHEMA}, the one known here")
    if manifest["id"] != path.name:
        raise StoreError(f"{path}: its manifest says it is {manifest['id']}")
    kind = kinds.of_manifest(manifest)
    if kind is None:
        raise StoreError(f"{path}: its conditions are of no kind that is known here")
    wanted = dict.fromkeys((*kind.tables, *manifest["tables"]))
    absent = [name for name in wanted if not (path / f"{name}.parquet").is_file()]
    if absent:
        raise StoreError(f"{path}: tables missing: {', '.join(absent)}")
    return Run(path, manifest)


def write_table(path: Path, table: pa.Table) -> str:
    """Write and sync one table, and return its SHA-256. The same table gives the same bytes.

    Raises OSError, also for what Arrow refuses.
    """
    try:
        with path.open("wb") as handle:
            # Dictionary pages pay off for the container column only; floats compress as well without.
            encoded = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
            pq.write_table(
                table,
                handle,
                compression="zstd",
                compression_level=1,
                use_dictionary=encoded,
                row_group_size=1 << 18,
            )
            handle.flush()
            os.fsync(handle.fileno())
    except pa.ArrowException as error:
        raise OSError(errno.EIO, str(error), str(path)) from None
    return _sha256(path)


def _write_file(path: Path, content: bytes) -> None:
    with path.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _discard(path: Path) -> None:
    """Remove what can be removed, without an error: the one that led to the removal is the one to report."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().split("\n", 1)[0]
