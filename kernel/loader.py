"""Load the BPF programs, name the containers to watch, and read the records.

For: period and memory records of named cgroups (testbed). Not for: what a record means for a container. Two
loaders put the same programs into the kernel: libbpf, below, and bcc (bcc_loader.py). Decision 0012 says when
which is used.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernel.build import object_file
from kernel.libbpf import ANY, ON_RECORD, STATS_RUN_TIME, ProgramInfo, library
from kernel.records import PERIOD, PRESSURE
from twinbed import BackendError


class Reported(NamedTuple):
    """The records since the last reading, oldest first.

    periods: array of records.PERIOD.
    pressures: array of records.PRESSURE.
    """

    periods: NDArray[np.void]
    pressures: NDArray[np.void]


class Overhead(NamedTuple):
    """The cost of one program so far. runs: number of its runs. time_ns: total time of these runs, ns."""

    runs: int
    time_ns: int


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of containers.bpf.c, loaded and attached until `close` is called.

    programs: kernel function → descriptor of the program attached to it
    maps: name in MAPS → descriptor of the map
    close: function that detaches and unloads everything; idempotent
    """

    programs: Mapping[str, int]
    maps: Mapping[str, int]
    close: Callable[[], None]


MAPS = ("watched", "lost", "periods", "pressures")
"""The maps of containers.bpf.c."""


def by_libbpf(compiled: Path) -> Programs:
    """Load the programs from a compiled object, which libbpf fits to the running kernel.

    compiled: path of the object. Raises BackendError if this kernel or user may not load the programs.
    """
    lib, links, programs = library(), list[int](), dict[str, int]()
    loaded = lib.bpf_object__open_file(str(compiled).encode(), None)

    def close() -> None:
        nonlocal loaded
        while links:
            lib.bpf_link__destroy(links.pop())
        if loaded:
            lib.bpf_object__close(loaded)
        loaded = None

    try:
        _existing(loaded, f"opening {compiled}")
        _checked(lib.bpf_object__load(loaded), "loading the programs")
        program = lib.bpf_object__next_program(loaded, None)
        while program:
            name = lib.bpf_program__name(program).decode()
            links.append(_existing(lib.bpf_program__attach(program), f"attaching to {name}"))
            programs[name] = lib.bpf_program__fd(program)
            program = lib.bpf_object__next_program(loaded, program)
        maps = {name: lib.bpf_object__find_map_fd_by_name(loaded, name.encode()) for name in MAPS}
    except BaseException:
        close()
        raise
    return Programs(programs, maps, close)


def load() -> Programs:
    """Load the programs through libbpf, or through bcc if nothing can compile them in advance.

    Raises BackendError if neither can.
    """
    try:
        compiled = object_file()
    except BackendError:
        from kernel import bcc_loader

        if not bcc_loader.available()[0]:
            raise
        return bcc_loader.by_bcc()
    return by_libbpf(compiled)


class Hooks:
    """The programs, loaded and attached for as long as this object lives. Usable as a context manager.

    loader: function that loads the programs. measure: whether the kernel counts how long they run. Raises
    BackendError, which names what is missing and the cure, if this kernel or this user may not load them.
    """

    def __init__(self, loader: Callable[[], Programs] = load, *, measure: bool = False) -> None:
        self._lib = library()
        self._loaded: Programs | None = None
        self._buffer: int | None = None
        self._stats: int | None = None
        self._periods: list[bytes] = []
        self._pressures: list[bytes] = []
        # Kept because ctypes does not keep them, and the kernel's records arrive through them.
        self._callbacks = (_appending(self._periods), _appending(self._pressures))
        try:
            self._loaded = loader()
            self._programs, self._maps = self._loaded.programs, self._loaded.maps
            self._buffer = self._lib.ring_buffer__new(self._maps["periods"], self._callbacks[0], None, None)
            _existing(self._buffer, "mapping the ring buffer")
            pressures, on_pressure = self._maps["pressures"], self._callbacks[1]
            added = self._lib.ring_buffer__add(self._buffer, pressures, on_pressure, None)
            _checked(added, "mapping the ring buffer")
            if measure:
                self._stats = _checked(self._lib.bpf_enable_stats(STATS_RUN_TIME), "counting run times")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def descriptor(self) -> int:
        """A descriptor that is readable (epoll) when something was reported."""
        return int(self._lib.ring_buffer__epoll_fd(self._buffer))

    def watch(self, ids: Iterable[int]) -> None:
        """Report these cgroups from now on. Raises BackendError if there are too many."""
        for cgroup in ids:
            key, purse = ctypes.c_uint64(cgroup), (ctypes.c_uint64 * 3)()
            code = self._lib.bpf_map_update_elem(
                self._maps["watched"], ctypes.byref(key), ctypes.byref(purse), ANY
            )
            _checked(code, f"watching cgroup {cgroup}")

    def unwatch(self, ids: Iterable[int]) -> None:
        """Stop reporting these cgroups. Unknown ids are ignored."""
        for cgroup in ids:
            self._lib.bpf_map_delete_elem(self._maps["watched"], ctypes.byref(ctypes.c_uint64(cgroup)))

    def read(self) -> Reported:
        """Return everything reported since the last call, without waiting."""
        self._lib.ring_buffer__consume(self._buffer)
        periods = np.frombuffer(b"".join(self._periods), PERIOD)
        pressures = np.frombuffer(b"".join(self._pressures), PRESSURE)
        self._periods.clear()
        self._pressures.clear()
        return Reported(periods, pressures)

    def lost(self) -> int:
        """Return the number of records that the kernel had no room for since the programs were loaded."""
        total = 0
        for kind in range(2):
            key, count = ctypes.c_uint32(kind), ctypes.c_uint64()
            self._lib.bpf_map_lookup_elem(self._maps["lost"], ctypes.byref(key), ctypes.byref(count))
            total += count.value
        return total

    def overhead(self) -> dict[str, Overhead]:
        """Return the cost of each program since it was loaded; zeros unless run times are counted."""
        result: dict[str, Overhead] = {}
        for name, descriptor in self._programs.items():
            info = ProgramInfo()
            size = ctypes.c_uint32(ctypes.sizeof(info))
            code = self._lib.bpf_obj_get_info_by_fd(descriptor, ctypes.byref(info), ctypes.byref(size))
            _checked(code, f"asking about {name}")
            result[name] = Overhead(int(info.run_cnt), int(info.run_time_ns))
        return result

    def close(self) -> None:
        """Detach and unload everything. Idempotent."""
        if self._buffer:
            self._lib.ring_buffer__free(self._buffer)
        if self._loaded is not None:
            self._loaded.close()
        if self._stats is not None:
            os.close(self._stats)
        self._loaded = self._buffer = self._stats = None


def _appending(records: list[bytes]) -> ctypes._FuncPointer:
    def on_record(_context: int, data: int, size: int) -> int:
        records.append(ctypes.string_at(data, size))
        return 0

    return ON_RECORD(on_record)


def _checked(result: int, action: str) -> int:
    if result < 0:
        # libbpf 1.x returns −errno, and sets errno as well where it returns −1.
        raise _refused(action, ctypes.get_errno() or -result)
    return result


def _existing(pointer: int | None, action: str) -> int:
    if not pointer:
        raise _refused(action, ctypes.get_errno())
    return pointer


def _refused(action: str, number: int) -> BackendError:
    cure = "poll cgroup files instead"
    if number in (errno.EPERM, errno.EACCES) and os.geteuid() == 0:
        cure = f"this kernel (lockdown) or container (capabilities) forbids BPF tracing; {cure}"
    elif number in (errno.EPERM, errno.EACCES):
        cure = f"run as root, or {cure}"
    elif number in (errno.ENOENT, errno.ESRCH, errno.EINVAL):
        cure = f"this kernel lacks what the programs attach to or the types they read; {cure}"
    return BackendError(f"kernel hooks: {action} was refused ({os.strerror(number)}); {cure}")
