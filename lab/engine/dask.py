"""Carries out units on Dask: workers on this machine or on many, behind one scheduler.

For: the engine `dask`. Not for: the order of the units nor repeating them (running.py), nor starting workers
on other machines, which Dask's own tools do (`dask scheduler`, `dask worker`, dask-jobqueue, dask-
kubernetes).

A file that a unit reads is sent once: as a task whose key is the hash of its content, so that workers pass it
on and the scheduler can make it again if its holder dies. A worker whose code differs is not used. A worker
may die or stop answering: Dask then gives its units to others (set `distributed.scheduler.worker-ttl` on the
scheduler, which is how long a silent worker counts as alive).
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import queue
import secrets
import shutil
import signal
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import distributed

from lab.ask.kind import Progress
from lab.engine.local import carried_out, cores, portable
from lab.engine.ports import Outcome, Session, Unit, Work
from lab.runs.code import code_sha256
from twinbed import BackendError, ScenarioError, __version__
from twinbed.files import MIB, open_regular
from twinbed.writing import whole

_dask: Any = distributed
"""Dask, whose functions mostly have no type annotations."""

REACH_S = 15.0
"""Time in which a scheduler must answer and have a worker, s: Dask's own timeout."""
WORKERS_S = 60.0
"""Time without a usable worker after which the work is given up, s. Batch systems restart one in less."""
_KEPT_S = 7 * 86_400.0
"""Time for which a worker keeps a file that no unit uses, s."""

MOST_BYTES = 64 * MIB
"""Largest file that travels, bytes. Larger ones must be on a file system that workers share."""

_ANSWER_S = 60.0
"""Time in which the scheduler and the workers must answer calls other than units, s: a worker answers between
two units' steps, and a busy machine takes seconds to import the necessary packages."""
_MOMENT_S = 0.1
_AHEAD = 2
"""Units per worker thread that are with Dask: one running and one waiting."""


class Dask:
    """The engine `dask`.

    address: address of the scheduler, `HOST:PORT`, `tcp://…` or `tls://…`; empty: workers of this machine
        are started.
    jobs: number of workers that are started here.
    """

    def __init__(self, address: str = "", jobs: int = 1) -> None:
        self._address, self._jobs = address, jobs

    @contextmanager
    def session(self, work: Work[Any, Any], progress: Progress | None) -> Iterator[Session]:
        """Return the engine, started; see lab.engine.ports.Engine."""
        # Dask logs every lost connection. A relevant one ends in an error or a retry.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with ExitStack() as stack:
            address = self._address
            cluster = None
            if not address:
                # Dask would wait for its workers for ever, so it begins without any.
                cluster = _dask.LocalCluster(
                    n_workers=0,
                    threads_per_worker=1,
                    memory_limit=min(1.0, 1 / cores()),
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
                stack.callback(_close, cluster)
                address = cluster.scheduler_address
            session = _Session(_client(address), address, work, progress)
            stack.callback(session.close)
            if cluster is not None:
                session.start_workers(cluster, self._jobs)
            session.look_at_workers()
            yield session


@dataclass(frozen=True, slots=True)
class _Input:
    """A file that travels. name: last part of its path; sha256: hash of its content."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class _Said:
    """A worker's message about a unit. worker: its address; progress: the last fraction of every label."""

    worker: str
    outcome: Outcome[Any] | None
    progress: Mapping[str, float]


class _Session:
    def __init__(self, client: Any, address: str, work: Work[Any, Any], progress: Progress | None) -> None:
        self._client, self._address, self._work, self._progress = client, address, work, progress
        self._ended: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._under_way: dict[int, tuple[Any, Unit[Any]]] = {}
        self._files: dict[str, tuple[_Input, Any]] = {}
        self._refused: dict[str, str] = {}
        self._width, self._seen_s, self._any_s = 1, -1.0, time.monotonic()
        self._name = secrets.token_hex(6)
        self._submitted = 0
        self._own: Callable[[], None] = _nothing

    @property
    def width(self) -> int:
        return self._width

    def look_at_workers(self) -> None:
        """Find the workers that have this code. Raises BackendError naming the others if none has."""
        deadline_s = time.monotonic() + REACH_S
        # A nanny restarts a worker that has just died.
        while not (found := self._asked(self._client._run, _about, on_error="return")):
            if time.monotonic() > deadline_s:
                raise BackendError(
                    f"{self._address}: the scheduler has no workers; start some: dask worker {self._address}"
                )
            time.sleep(_MOMENT_S)
        for worker, told in found.items():
            problem = _difference(told)
            if problem:
                self._refused[worker] = f"worker {worker}: {problem}"
        if len(self._refused) == len(found):
            raise BackendError(f"{self._address}: {'; '.join(self._refused.values())}")
        for line in self._refused.values():
            warnings.warn(f"{line}; it is not used", stacklevel=2)
        self._count()

    def start_workers(self, cluster: Any, workers: int) -> None:
        """Start workers of this machine, and wait for them. Raises BackendError after WORKERS_S."""
        self._own = lambda: cluster.scale(workers)
        self._own()
        try:
            self._client.wait_for_workers(workers, timeout=WORKERS_S)
        except (OSError, TimeoutError):
            raise BackendError(
                f"{self._address}: {workers} workers did not start within {WORKERS_S:g} s; use fewer: --jobs"
            ) from None

    def submit(self, number: int, unit: Unit[Any]) -> None:
        sizes = {file: _size(file) for file in unit.files}
        shared = {file: size for file, size in sizes.items() if size == _FOLDER or size > MOST_BYTES}
        names = tuple(file for file in unit.files if file not in shared)
        travelling = [self._travelling(file) for file in names]
        self._submitted += 1
        usable = self._usable() if self._refused else None
        future = self._client.submit(
            _carry_out,
            self._work,
            number,
            replace(unit, files=names),
            code_sha256(),
            [about for about, _ in travelling],
            shared,
            *(content for _, content in travelling),
            key=f"twinbed-{self._name}-{self._submitted}",
            priority=-self._submitted,
            workers=usable,
            # Workers may die, and others may join. A worker with other code reports it and returns the unit.
            allow_other_workers=bool(usable),
            pure=False,
        )
        self._under_way[number] = future, unit
        future.add_done_callback(lambda ended: self._ended.put((number, ended)))

    def ended(self) -> Sequence[Outcome[Any]]:
        self._count()
        landed = []
        with suppress(queue.Empty):
            landed.append(self._ended.get(timeout=_MOMENT_S))
            while True:
                landed.append(self._ended.get_nowait())
        landed = [(number, future) for number, future in landed if self._under_way[number][0] is future]
        whole = [future for _, future in landed if future.status == "finished"]
        said = iter(self._gathered(whole))
        outcomes = [
            self._outcome(number, next(said) if future.status == "finished" else None, future)
            for number, future in landed
        ]
        return [outcome for outcome in outcomes if outcome is not None]

    def close(self) -> None:
        """Stop all work that has not begun, and leave the scheduler."""
        with suppress(Exception):
            self._client.cancel([future for future, _ in self._under_way.values()], force=True)
        self._under_way.clear()
        self._files.clear()
        with suppress(Exception):
            self._client.close(timeout=2)

    def _outcome(self, number: int, said: Any, future: Any) -> Outcome[Any] | None:
        """Return how a unit ended; None if it was given to another worker."""
        unit = self._under_way.pop(number)[1]
        if isinstance(said, _Said):
            if said.outcome is None:
                self._refused[said.worker] = f"worker {said.worker}: it has other code of twinbed"
                self.submit(number, unit)
                return None
            for label, fraction in said.progress.items():
                if self._progress is not None:
                    self._progress(label, fraction)
            return said.outcome
        if future.status != "error":
            self._connected_again()
            return Outcome(number, error=BackendError("the connection to the scheduler was lost meanwhile"))
        error = future.exception(timeout=REACH_S)
        if isinstance(error, _dask.KilledWorker):
            # Dask blames every unit that the dead workers held, so each unit is repeated alone.
            text = "every worker that it was given to died, perhaps for lack of memory"
            return Outcome(number, error=BackendError(text), lost=True)
        return Outcome(number, error=BackendError(f"{type(error).__name__}: {error}"))

    def _connected_again(self) -> None:
        """Wait until Dask's client is connected to its scheduler again. The scheduler has forgotten all units
        in progress. Raises BackendError after REACH_S."""
        deadline_s = time.monotonic() + REACH_S
        while self._client.status != "running":
            if time.monotonic() > deadline_s or self._client.status == "closed":
                raise self._gone()
            time.sleep(_MOMENT_S)
        self._files.clear()

    def _gathered(self, futures: list[Any]) -> list[Any]:
        """Return the results; None for the units that must be made again. Usually Dask itself makes a lost
        result again."""
        if not futures:
            return []
        try:
            return list(self._asked(self._client._gather, futures))
        except (_dask.CancelledError, _dask.KilledWorker):
            # A worker with a result died, and Dask gave up making the result again.
            if len(futures) == 1:
                return [None]
            return [said for future in futures for said in self._gathered([future])]
        except OSError:
            raise self._gone() from None

    def _asked(self, ask: Any, *arguments: Any, **options: Any) -> Any:
        """Return Dask's answer to a question of its client. Raises BackendError after _ANSWER_S."""
        try:
            return self._client.sync(ask, *arguments, **options, callback_timeout=_ANSWER_S)
        except TimeoutError:
            raise BackendError(
                f"{self._address}: the scheduler or a worker gave no answer within {_ANSWER_S:g} s; what is "
                "done stays done"
            ) from None

    def _count(self) -> None:
        """Count the workers' threads, once a second. Raises BackendError without scheduler or workers."""
        now_s = time.monotonic()
        if now_s - self._seen_s < 1:
            return
        try:
            threads = self._asked(self._client.scheduler.ncores)
        except (OSError, ValueError):
            raise self._gone() from None
        self._seen_s = now_s
        # A worker that dies while its nanny is still starting it is not restarted. This call is idempotent.
        self._own()
        usable = sum(count for worker, count in threads.items() if worker not in self._refused)
        if usable:
            self._any_s, self._width = now_s, _AHEAD * usable
        elif now_s - self._any_s > WORKERS_S:
            why = "; ".join(self._refused[worker] for worker in threads) or "all workers are gone"
            raise BackendError(f"{self._address}: {why}; finished runs stay stored")

    def _usable(self) -> list[str]:
        threads = self._asked(self._client.scheduler.ncores)
        workers = [worker for worker in threads if worker not in self._refused]
        if not workers:
            raise BackendError(f"{self._address}: {'; '.join(self._refused.values())}")
        return workers

    def _gone(self) -> BackendError:
        return BackendError(
            f"{self._address}: the connection to the scheduler is lost; finished runs stay stored"
        )

    def _travelling(self, file: str) -> tuple[_Input, Any]:
        """Return a file as a task that has its content. Raises ScenarioError."""
        if file not in self._files:
            with open_regular(file, MOST_BYTES, ScenarioError) as opened:
                content = opened.read()
            about = _Input(Path(file).name, hashlib.sha256(content).hexdigest())
            with warnings.catch_warnings():
                # This task is large because it contains a file.
                warnings.simplefilter("ignore", UserWarning)
                future = self._client.submit(_content, content, key=f"twinbed-input-{about.sha256}")
            self._files[file] = about, future
        return self._files[file]


def _nothing() -> None:
    """Start no workers: those of another machine are started by its user."""


def _close(cluster: Any) -> None:
    """Stop the workers of this machine. Those that do not end within REACH_S are killed."""
    nannies = list(cluster._created)
    # A nanny that closes forgets its worker, which may still be ending.
    workers = [nanny.process for nanny in nannies]
    # Dask asserts that a process has begun before it waits for its end. One that was about to has not.
    with suppress(TimeoutError, AssertionError):
        cluster.close(timeout=REACH_S)
        return
    for nanny in nannies:
        if nanny.status.name == "running":
            # Otherwise the nanny would start its worker again.
            nanny.close_gracefully()
    deadline_s = time.monotonic() + _ANSWER_S
    workers += [nanny.process for nanny in nannies]
    for worker in filter(None, dict.fromkeys(workers)):
        while (worker.is_alive() or worker.status.name == "starting") and time.monotonic() < deadline_s:
            with suppress(ProcessLookupError):
                if (pid := worker.pid) is not None:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_MOMENT_S / 10)


def _client(address: str) -> Any:
    where = address if "://" in address else f"tcp://{address}"
    try:
        return _dask.Client(where, timeout=REACH_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise BackendError(
            f"{address}: no Dask scheduler answers there ({type(error).__name__}); start one: dask scheduler"
        ) from None


def _difference(told: Any) -> str:
    """Return how a worker's twinbed differs from this one, or ""."""
    if isinstance(told, Exception):
        return f"it has no twinbed of this version ({told})"
    version, code = told
    if code == code_sha256():
        return ""
    return (
        f"it has other code of twinbed, {version} with hash {code[:10]}; here is {__version__} with "
        f"{code_sha256()[:10]}"
    )


def _about() -> tuple[str, str]:
    """Return the version of this worker and the hash of its code. Every worker runs this function."""
    return __version__, code_sha256()


def _content(content: bytes) -> bytes:
    """Run by a worker: return a file's content unchanged."""
    return content


def _carry_out(
    work: Work[Any, Any],
    number: int,
    unit: Unit[Any],
    code: str,
    inputs: Sequence[_Input],
    shared: Mapping[str, int],
    *contents: bytes,
) -> _Said:
    """Run by a worker: do the work on a unit, with its files at hand.

    code: hash of the code that it must be done with; inputs, contents: the unit's files; shared: sizes of the
    folders and files that must be on this machine, see _size.
    """
    here = _dask.get_worker().address
    if code_sha256() != code:
        return _Said(here, None, {})
    missing = [path for path, size in shared.items() if _size(path) != size]
    if missing:
        text = (
            f"worker {here}: {missing[0]} is not there as it is here; folders, and files above "
            f"{MOST_BYTES // MIB} MiB, do not travel: mount it at the same path"
        )
        return _Said(here, Outcome(number, error=BackendError(text)), {})
    places = {path: path for path in shared}
    try:
        for name, about, content in zip(unit.files, inputs, contents, strict=True):
            places[name] = str(_placed(about, content))
    except OSError as error:
        text = f"worker {here}: an input cannot be written: {error.filename}: {error.strerror}"
        return _Said(here, Outcome(number, error=BackendError(text)), {})
    progress: dict[str, float] = {}
    outcome = portable(carried_out(work, number, unit, progress.__setitem__, places))
    return _Said(here, outcome, progress)


_FOLDER, _ABSENT = -1, -2


def _size(path: str) -> int:
    """Return a file's size, bytes; _FOLDER for a folder, _ABSENT if nothing is there."""
    if Path(path).is_dir():
        return _FOLDER
    try:
        return Path(path).stat().st_size
    except OSError:
        return _ABSENT


def _placed(about: _Input, content: bytes) -> Path:
    """Return the file's path on this worker, written whole. Raises OSError."""
    folder = _own_folder() / about.sha256
    place = folder / about.name
    if not place.exists() or hashlib.sha256(place.read_bytes()).hexdigest() != about.sha256:
        for other in folder.parent.iterdir():
            if time.time() - other.lstat().st_mtime > _KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(exist_ok=True, mode=0o700)
        with whole(place) as file:
            file.write(content)
    os.utime(folder)
    return place


def _own_folder() -> Path:
    """Return the folder of this user's inputs. Raise OSError if another user owns the folder of that name."""
    folder = Path(tempfile.gettempdir()) / f"twinbed-inputs-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(errno.EPERM, "is not this user's own folder; remove it", str(folder))
    return folder
