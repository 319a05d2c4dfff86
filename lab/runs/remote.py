"""A run store on object storage: S3, and other systems that fsspec supports.

For: `--store s3://BUCKET/PREFIX`. Not for: folders (lab.runs.store). A table is stored under its run as
NAME.SHA256.parquet, and the manifest, which names the hashes, last: it is one object, so writing it is the
commit. A reader that has read a manifest finds the tables that belong to it. Two writers of the same run
write the same objects, and the last manifest counts. The objects of a writer that died before its commit are
not a run; `twinbed runs prune` removes them.

Listing many objects takes long, so `list` and `query` have an index (lab.runs.index). A writer announces the
manifest that it is about to write or remove, and a reader reads the announced manifests again. An
announcement is removed when an index contains its manifest, or after a day. `twinbed runs prune` drops the
index, and the next reader builds it from all manifests, as if there were none.
"""

from __future__ import annotations

import atexit
import io
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pandas as pd
import pyarrow as pa

from lab import kinds
from lab.runs import index as indexing
from lab.runs import publishing
from lab.runs.manifest import completed
from lab.runs.quota import Quota
from lab.runs.shelf import FolderShelf, Shelf
from lab.runs.store import INDEX_FROM, MANIFEST, Run, RunStore, manifest_of
from twinbed import StoreError, TwinbedError
from twinbed.text import printable

if TYPE_CHECKING:
    import duckdb

_TOGETHER = 256
"""Number of manifests that are read at the same time: a server answers this many at once, and each is a few
kilobytes."""
_DIGITS = indexing.DIGITS
"""Hex digits of a hash in an object's name."""
_TABLE = re.compile(rf"[a-z][a-z0-9_]*\.[0-9a-f]{{{_DIGITS}}}\.parquet")
"""The names of tables, as `_object` makes them."""
_SAID, _GONE = ".said", "gone"


class RemoteRun(Run):
    """A run on object storage. Its tables are fetched when its path is requested."""

    __slots__ = ("_store",)
    _store: ObjectStore

    def __init__(self, store: ObjectStore, manifest: Mapping[str, Any]) -> None:
        object.__setattr__(self, "manifest", manifest)
        object.__setattr__(self, "_store", store)

    @property
    def path(self) -> Path:
        """A folder of this machine with the run's files. It exists until the process ends."""
        return self._store.fetched(self.manifest)

    def measured_bytes(self) -> int:
        """Return the size of its objects, which the storage knows without sending them."""
        return self._store.size_of(self.id)


class ObjectStore(RunStore):
    """All runs below a URL such as s3://bucket/prefix. Raises StoreError if its bucket cannot be reached."""

    def __init__(self, url: str) -> None:
        if not url.partition("://")[2].strip("/"):
            raise StoreError(f"{url}: names no bucket; write s3://BUCKET/PREFIX")
        self.location = url.rstrip("/")
        self.root = Path(self.location)
        with self._spoken():
            # Another process may write at any time, so no listing is cached.
            self._fs, self._prefix = fsspec.core.url_to_fs(self.location, use_listings_cache=False)
            # s3fs asks for an object's size before it reads it in parts, and lists names where there is none.
            # A manifest is small.
            self._whole = {"max_concurrency": 1} if hasattr(self._fs, "max_concurrency") else {}
            # `exists` takes every error for "no", but listing a name reports the error.
            with suppress(FileNotFoundError):
                self._fs.info(self._at(MANIFEST))
            bucket = self._prefix.partition("/")[0]
            if bucket and not self._fs.exists(bucket):
                raise StoreError(f"{self.location}: there is no bucket {bucket}, or it is not yours to read")
        self.quota = Quota(self)

    def names(self) -> list[str]:
        """Return the sorted names of all whole runs."""
        return sorted(run for run, files in self._found().items() if MANIFEST in files)

    def open_all(self, run_ids: Sequence[str]) -> list[Run]:
        """Return the runs with exactly these ids, read in parallel."""
        read = dict(self._manifests(run_ids))
        missing = [run_id for run_id in run_ids if read.get(run_id) is None]
        if missing:
            raise StoreError(
                f"{self.location}: there is no run {missing[0]}; twinbed runs list shows which there are"
            )
        return [self._run(run_id, read[run_id] or b"") for run_id in run_ids]

    def remove(self, run_id: str) -> None:
        """Delete a run."""
        run_id = self.whole_id(run_id)
        with self._spoken():
            self._fs.pipe_file(self._at(_SAID, f"{_GONE}.{run_id}"), b"")
            # Without its manifest the run is removed; the remaining objects are leftovers.
            self._fs.rm_file(self._at(run_id, MANIFEST))
            for file in self._fs.find(self._at(run_id)):
                self._fs.rm_file(file)

    def sweep(self, older_s: float) -> int:
        """Remove tables of at least this age that no manifest names. What else the bucket has stays."""
        now_s, left, found = time.time(), 0, self._found()
        for run_id, text in self._manifests(list(found)):
            named = set[str]()
            if text is not None:
                _, run, _ = self._judged(run_id, text)
                if run is None:
                    continue  # Damaged objects are left for people to examine.
                named = {_object(name, sha) for name, sha in run.manifest["tables"].items()}
            for file, about in found[run_id].items():
                if file not in named and _TABLE.fullmatch(file) and now_s - _made_s(about) > older_s:
                    with self._spoken():
                        self._fs.rm_file(about["name"])
                    left += 1
        old = [path for path, (*_, made_s) in self._announced().items() if now_s - made_s > older_s]
        with self._spoken():
            # The next reader builds the index from all manifests.
            for path in (*self._fs.find(self._at(indexing.SHELF)), *old):
                self._fs.rm_file(path)
        return left

    def shelf(self, name: str) -> Shelf:
        """Return the shelf of this name beside the runs."""
        return _ObjectShelf(self, name)

    def publish(self, manifest: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> Run:
        """Write a run as RunStore.publish does. A run of the same id stays until the new one is whole."""
        run_id, kind = str(manifest["id"]), kinds.of_manifest(manifest)
        assert kind is not None
        contents = {}
        for name in (*kind.tables, *(name for name in kind.optional_tables if name in tables)):
            buffer = io.BytesIO()
            publishing.encode(tables[name], buffer)
            contents[name] = buffer.getvalue()
        sums = {name: sha256(content).hexdigest() for name, content in contents.items()}
        full, text = completed(manifest, sums, sum(map(len, contents.values())))
        self.quota.claim(full["bytes"])
        with self._spoken():
            before = self._tables_of(run_id)
            own = {_object(name, sums[name]): content for name, content in contents.items()}
            try:
                self._fs.pipe({self._at(run_id, file): content for file, content in own.items()})
                self._fs.pipe_file(self._at(_SAID, f"{_stamp(text)}.{run_id}"), b"")
                self._fs.pipe_file(self._at(run_id, MANIFEST), text)
            except BaseException:
                # Another writer may have written the same run meanwhile.
                self._discard(run_id, set(own) - before - self._tables_of(run_id))
                raise
            self._discard(run_id, before - set(own))
        return RemoteRun(self, full)

    def fetched(self, manifest: Mapping[str, Any]) -> Path:
        """Return a folder of this process with a run's tables and manifest."""
        text = (json.dumps(manifest, indent=1) + "\n").encode()
        digest = sha256(self.location.encode() + text).hexdigest()
        kept = FolderShelf(_kept() / digest[:_DIGITS] / str(manifest["id"]))
        there = kept.names()
        for name, sha in manifest["tables"].items():
            if f"{name}.parquet" not in there:
                with self._spoken():
                    content = self._fs.cat_file(self._at(manifest["id"], _object(name, sha)))
                kept.write(f"{name}.parquet", content)
        if MANIFEST not in there:
            kept.write(MANIFEST, text)
        return kept.folder

    def size_of(self, run_id: str) -> int:
        """Return the size of a run's objects, bytes."""
        with self._spoken():
            return int(self._fs.du(self._at(run_id)))

    def _scan(self, names: Sequence[str] | None = None) -> Iterator[tuple[str, Run | None, str]]:
        for run_id, text in self._manifests(self._visible() if names is None else names):
            # A run that was removed at this moment counts as missing.
            if text is not None:
                yield self._judged(run_id, text)

    def _visible(self) -> list[str]:
        return self.names()

    def _judged(self, run_id: str, text: bytes) -> tuple[str, Run | None, str]:
        try:
            return run_id, self._run(run_id, text), ""
        except StoreError as error:
            problem = str(error).removeprefix(f"{self.location}/{run_id}: ")
            return printable(run_id), None, printable(problem)

    def _listing(self) -> pd.DataFrame:
        index = indexing.Index(self.shelf(indexing.SHELF))
        # The announcements are listed before any manifest is read, so later writes stay announced to the next
        # reader.
        said, now_s = self._announced(), time.time()
        files = index.files()
        known = index.read(files)
        names = self.names() if known.empty else sorted({run_id for _, run_id, _ in said.values()})
        read: dict[str, str] = {}
        rows = []
        for run_id, text in self._manifests(names):
            stamp = read[run_id] = _GONE if text is None else _stamp(text)
            name, run, problem = (run_id, None, "") if text is None else self._judged(run_id, text)
            if run is None:
                size = self.size_of(run_id) if problem else 0
                rows.append({"id": name, "stamp": stamp, "read_s": now_s, "problem": problem, "bytes": size})
            else:
                rows.append(indexing.row_of(run, stamp, now_s))
        frame = indexing.together([known[~known["id"].isin(names)]], rows)
        done = [
            path
            for path, (stamp, run_id, made_s) in said.items()
            if read.get(run_id, _GONE) == stamp or now_s - made_s > publishing.ELSEWHERE_S
        ]
        if len(frame) >= INDEX_FROM and (known.empty or done) and index.write(frame, files) and done:
            with suppress(Exception):
                index.forget_others()  # They do not learn what is announced no longer.
                self._fs.rm(done)
        there = frame[frame["stamp"] != _GONE]
        return there.astype({"seed": "int64"}) if there["seed"].notna().all() else there

    def _announced(self) -> dict[str, tuple[str, str, float]]:
        """Return for each announcement the stamp of its manifest, the run, and the time at which it was made,
        s."""
        table = {}
        with self._spoken():
            for path, about in self._fs.find(self._at(_SAID), detail=True).items():
                stamp, _, run_id = path.rpartition("/")[2].partition(".")
                table[path] = stamp, run_id, _made_s(about)
        return table

    def _manifests(self, run_ids: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield each run with its manifest's text, None if it has none."""
        for first in range(0, len(run_ids), _TOGETHER):
            some = run_ids[first : first + _TOGETHER]
            with self._spoken():
                paths = [self._at(run, MANIFEST) for run in some]
                texts = self._fs.cat(paths, on_error="return", **self._whole)
            for run in some:
                text = texts[self._at(run, MANIFEST)]
                if isinstance(text, Exception) and not isinstance(text, FileNotFoundError):
                    raise StoreError(f"{self.location}/{run}: {_line(text)}")
                yield run, text if isinstance(text, bytes) else None

    def _run(self, run_id: str, text: bytes) -> Run:
        return RemoteRun(self, manifest_of(text, f"{self.location}/{run_id}", run_id)[0])

    def _read(self, run_id: str) -> Run:
        return self.open_all([run_id])[0]

    def _stands(self, run_id: str) -> bool:
        return dict(self._manifests([run_id]))[run_id] is not None

    def _prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.register_filesystem(self._fs)

    def _table_file(self, run_id: str, stored: str) -> str:
        return str(self._fs.unstrip_protocol(self._at(run_id, f"{stored}.parquet")))

    def _tables_of(self, run_id: str) -> set[str]:
        """Return the objects that the run's manifest names; none if the run is not whole."""
        try:
            tables = self._read(run_id).manifest["tables"]
        except StoreError:
            return set()
        return {_object(name, sha) for name, sha in tables.items()}

    def _discard(self, run_id: str, files: set[str]) -> None:
        """Remove as much as possible. Objects that stay belong to no run."""
        for file in files:
            with suppress(Exception):
                self._fs.rm_file(self._at(run_id, file))

    def _found(self) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Return name of a run → name of its object → the storage's metadata of it."""
        table: dict[str, dict[str, Mapping[str, Any]]] = {}
        with self._spoken():
            for path, about in self._fs.find(self._prefix, detail=True).items():
                run, _, file = path.removeprefix(f"{self._prefix}/").partition("/")
                if file and not run.startswith("."):
                    table.setdefault(run, {})[file] = about
        return table

    def _endings(self, run_id: str) -> set[str]:
        with self._spoken():
            return {Path(path).suffix for path in self._fs.find(self._at(run_id))}

    def _at(self, *names: str) -> str:
        return "/".join([self._prefix, *names])

    @contextmanager
    def _spoken(self) -> Iterator[None]:
        """Convert the storage library's various errors into a StoreError of one line."""
        try:
            yield
        except TwinbedError:
            raise
        except ModuleNotFoundError:
            raise
        except ImportError as error:
            # fsspec names the missing package itself. The extra only has that of S3.
            cure = "; pip install 'twinbed[scale]'" if self.location.startswith("s3:") else ""
            raise StoreError(f"{self.location}: {printable(str(error))}{cure}") from None
        except Exception as error:
            cure = "; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            cure = cure if type(error).__name__ == "NoCredentialsError" else ""
            raise StoreError(f"{self.location}: {_line(error)}{cure}") from None


class _ObjectShelf:
    """Small objects beside the runs."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store, self._name = store, name

    def names(self) -> list[str]:
        """Return the names of the objects."""
        with self._store._spoken():
            paths = self._store._fs.find(self._store._at(self._name))
        return sorted(path.rpartition("/")[2] for path in paths)

    def read(self, name: str) -> bytes:
        """Return an object's content."""
        with self._store._spoken():
            return bytes(self._store._fs.cat_file(self._store._at(self._name, name)))

    def write(self, name: str, content: bytes) -> None:
        """Write an object."""
        with self._store._spoken():
            self._store._fs.pipe_file(self._store._at(self._name, name), content)

    def remove(self, name: str) -> None:
        """Remove an object."""
        with self._store._spoken(), suppress(FileNotFoundError):
            self._store._fs.rm_file(self._store._at(self._name, name))


def _object(name: str, sha: str) -> str:
    return f"{name}.{sha[:_DIGITS]}.parquet"


def _stamp(text: bytes) -> str:
    """Return the manifest's part of an object's name, which identifies its content."""
    return sha256(text).hexdigest()[:_DIGITS]


def _made_s(about: Mapping[str, Any]) -> float:
    """Return when an object was made, s, by the storage's metadata; now if that is unknown."""
    made = about.get("LastModified") or about.get("created") or time.time()
    return made.timestamp() if isinstance(made, datetime) else float(made)


@cache
def _kept() -> Path:
    """Return the folder of the objects that this process has fetched. It is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="twinbed-fetched-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)
