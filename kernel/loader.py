"""Loads the BPF programs, names the containers to watch, and hands out what the kernel reported.

For: whoever wants period and memory records of named cgroups (testbed). Not for: what a record means for a
container. Loads the CO-RE object through libbpf; docs/decisions/0012 says why not by bcc.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel.build import object_file
from kernel.libbpf import ANY, ON_RECORD, STATS_RUN_TIME, ProgramInfo, library
from kernel.records import PERIOD, PRESSURE
from twinbed import BackendError


class Reported(NamedTuple):
    """What came since it was last asked: arrays of records.PERIOD and records.PRESSURE, in time's order."""

    periods: NDArray[np.void]
    pressures: NDArray[np.void]


class Overhead(NamedTuple):
    """What one program cost so far: how often it ran, and for how long in total (ns)."""

    runs: int
    time_ns: int


class Hooks:
    """The programs, loaded and attached for as long as this lives. Usable as a context manager.

    Raises BackendError where this kernel, or this user, may not load them: what is missing and the cure.
    """

    def __init__(self, compiled: Path | None = None, *, measure: bool = False) -> None:
        self._lib = library()
        self._links: dict[str, tuple[int, int]] = {}
        self._object: int | None = None
        self._buffer: int | None = None
        self._stats: int | None = None
        self._watched = self._lost = -1
        self._periods: list[bytes] = []
        self._pressures: list[bytes] = []
        # Kept: ctypes does not, and the kernel's records arrive through them.
        self._callbacks = (_appending(self._periods), _appending(self._pressures))
        try:
            self._load(compiled or object_file())
            if measure:
                self._stats = self._checked(self._lib.bpf_enable_stats(STATS_RUN_TIME), "counting run times")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def descriptor(self) -> int:
        """Readable (epoll) when something was reported."""
        return int(self._lib.ring_buffer__epoll_fd(self._buffer))

    def watch(self, ids: Iterable[int]) -> None:
        """Cgroups that are reported from now on; BackendError when there are too many."""
        for each in ids:
            key, purse = ctypes.c_uint64(each), (ctypes.c_uint64 * 3)()
            done = self._lib.bpf_map_update_elem(self._watched, ctypes.byref(key), ctypes.byref(purse), ANY)
            self._checked(done, f"watching cgroup {each}")

    def unwatch(self, ids: Iterable[int]) -> None:
        """Cgroups that are reported no more; unknown ones are ignored."""
        for each in ids:
            self._lib.bpf_map_delete_elem(self._watched, ctypes.byref(ctypes.c_uint64(each)))

    def read(self) -> Reported:
        """Everything reported since the last call; returns at once."""
        self._lib.ring_buffer__consume(self._buffer)
        periods = np.frombuffer(b"".join(self._periods), PERIOD)
        pressures = np.frombuffer(b"".join(self._pressures), PRESSURE)
        self._periods.clear()
        self._pressures.clear()
        return Reported(periods, pressures)

    def lost(self) -> int:
        """Records that the kernel had no room for since the programs were loaded."""
        total = 0
        for which in range(2):
            count = ctypes.c_uint64()
            key = ctypes.c_uint32(which)
            self._lib.bpf_map_lookup_elem(self._lost, ctypes.byref(key), ctypes.byref(count))
            total += count.value
        return total

    def overhead(self) -> dict[str, Overhead]:
        """Per program, what it cost since it was loaded; zeros where run times are not counted."""
        result: dict[str, Overhead] = {}
        for name, (_, descriptor) in self._links.items():
            info = ProgramInfo()
            size = ctypes.c_uint32(ctypes.sizeof(info))
            done = self._lib.bpf_obj_get_info_by_fd(descriptor, ctypes.byref(info), ctypes.byref(size))
            self._checked(done, f"asking about {name}")
            result[name] = Overhead(int(info.run_cnt), int(info.run_time_ns))
        return result

    def close(self) -> None:
        """Detaches and unloads everything. Idempotent."""
        while self._links:
            self._lib.bpf_link__destroy(self._links.popitem()[1][0])
        if self._buffer:
            self._lib.ring_buffer__free(self._buffer)
        if self._object:
            self._lib.bpf_object__close(self._object)
        if self._stats is not None:
            os.close(self._stats)
        self._object = self._buffer = self._stats = None

    def _load(self, compiled: Path) -> None:
        self._object = self._lib.bpf_object__open_file(str(compiled).encode(), None)
        if not self._object:
            raise self._refused(f"opening {compiled}", ctypes.get_errno())
        self._checked(self._lib.bpf_object__load(self._object), "loading the programs")
        program = self._lib.bpf_object__next_program(self._object, None)
        while program:
            name = self._lib.bpf_program__name(program).decode()
            link = self._lib.bpf_program__attach(program)
            if not link:
                raise self._refused(f"attaching {name}", ctypes.get_errno())
            self._links[name] = (link, self._lib.bpf_program__fd(program))
            program = self._lib.bpf_object__next_program(self._object, program)
        self._watched, self._lost, periods, pressures = (
            self._checked(self._lib.bpf_object__find_map_fd_by_name(self._object, name), name.decode())
            for name in (b"watched", b"lost", b"periods", b"pressures")
        )
        self._buffer = self._lib.ring_buffer__new(periods, self._callbacks[0], None, None)
        if not self._buffer:
            raise self._refused("mapping the ring buffer", ctypes.get_errno())
        added = self._lib.ring_buffer__add(self._buffer, pressures, self._callbacks[1], None)
        self._checked(added, "mapping the ring buffer")

    def _checked(self, result: int, what: str) -> int:
        if result < 0:
            # libbpf 1.x returns −errno, and sets errno as well where it returns −1.
            raise self._refused(what, ctypes.get_errno() or -result)
        return result

    def _refused(self, what: str, number: int) -> BackendError:
        return BackendError(f"kernel hooks: {what} was refused ({os.strerror(number)}); {_cure(number)}")


def _appending(records: list[bytes]) -> ctypes._FuncPointer:
    def on_record(_context: int, data: int, size: int) -> int:
        records.append(ctypes.string_at(data, size))
        return 0

    return ON_RECORD(on_record)


def _cure(number: int) -> str:
    instead = "poll cgroup files instead"
    if number in (errno.EPERM, errno.EACCES) and os.geteuid() == 0:
        return f"this kernel (lockdown) or container (capabilities) forbids BPF tracing; {instead}"
    if number in (errno.EPERM, errno.EACCES):
        return f"run as root, or {instead}"
    if number in (errno.ENOENT, errno.ESRCH, errno.EINVAL):
        return f"this kernel lacks what the programs attach to or the types they read; {instead}"
    return instead
