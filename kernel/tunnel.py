"""Load the tunnel program with its maps, or take them over from the process that loaded them.

For: testbed.fabric.rules.bpf, which attaches the program and decides the content of the maps. Not for:
deciding the rules. Nothing is pinned. A tc filter holds the program, and the program's id leads to the maps.
Both disappear when no filter and no process holds the program any more.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from kernel.build import TUNNEL_SOURCE, object_file
from kernel.libbpf import ANY, MapInfo, ProgramInfo, library
from twinbed import BackendError

KEY = np.dtype([("device", "=u4"), ("mac", "u1", 6), ("unused", "=u2")])
RULE = np.dtype(
    [("vni", "=u4"), ("remote", "=u4"), ("action", "=u4"), ("handle", "=u4"), ("cookie", "=u8")],
)
"""`struct key` and `struct rule` of tunnel.bpf.c."""

_WAY_OUT = np.dtype([("device", "=u4"), ("local", "=u4")])
_RULES, _OUT, _FRAMES = "tunnel_rules", "tunnel_way_out", "tunnel_frames"
_SIZES = {_RULES: (KEY.itemsize, RULE.itemsize), _OUT: (4, _WAY_OUT.itemsize), _FRAMES: (4, 8)}
_PROGRAM = "tunnel"
_MOST_MAPS = 8
_READ_AT_ONCE = 16384

Keys = NDArray[np.void]


class Tunnel:
    """A program and its maps, held open. Made by `load` and `adopt`; usable as a context manager.

    room: number of rules that the map takes
    program, program_id: the program's descriptor and its number in the kernel

    The next frame sees a write or a removal. Replacing an existing rule leaves no moment without one.
    """

    def __init__(self, program: int, maps: dict[str, int]) -> None:
        self._lib = library()
        self.program, self._maps = program, maps
        info = ProgramInfo()
        try:
            self.room: int = _map_info(maps[_RULES]).max_entries
            _ask(program, info)
        except BaseException:
            self.close()
            raise
        self.program_id: int = info.id

    @classmethod
    def load(cls, room: int) -> Self:
        """Load a new program without rules and without a way out. room: largest number of rules.

        Raises BackendError if it cannot be compiled, or this kernel or user may not load it.
        """
        lib = library()
        compiled = object_file(source=TUNNEL_SOURCE)
        loaded = lib.bpf_object__open_file(str(compiled).encode(), None)
        if not loaded:
            raise _refused("opening", ctypes.get_errno())
        try:
            lib.bpf_map__set_max_entries(lib.bpf_object__find_map_by_name(loaded, _RULES.encode()), room)
            if (code := lib.bpf_object__load(loaded)) < 0:
                raise _refused("loading", -code)
            program = lib.bpf_program__fd(lib.bpf_object__next_program(loaded, None))
            maps = {name: lib.bpf_object__find_map_fd_by_name(loaded, name.encode()) for name in _SIZES}
            return cls(os.dup(program), {name: os.dup(map_) for name, map_ in maps.items()})
        finally:
            lib.bpf_object__close(loaded)

    @classmethod
    def adopt(cls, program_id: int) -> Self | None:
        """Return the program of this id with its maps; None if it is not ours, or gone."""
        lib = library()
        program = lib.bpf_prog_get_fd_by_id(program_id)
        if program < 0:
            return None
        maps: dict[str, int] = {}
        ids = (ctypes.c_uint32 * _MOST_MAPS)()
        info = ProgramInfo(nr_map_ids=_MOST_MAPS, map_ids=ctypes.addressof(ids))
        with ExitStack() as opened:
            opened.callback(os.close, program)
            known = _ask(program, info) and info.name.decode() == _PROGRAM
            for map_id in ids[: min(info.nr_map_ids, _MOST_MAPS)] if known else ():
                if (descriptor := lib.bpf_map_get_fd_by_id(map_id)) >= 0:
                    opened.callback(os.close, descriptor)
                    maps[_map_info(descriptor).name.decode()] = descriptor
            if maps.keys() == _SIZES.keys() and all(_sizes(maps[name]) == _SIZES[name] for name in maps):
                opened.pop_all()
                return cls(program, maps)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the program and its maps. Idempotent."""
        if self.program >= 0:
            for descriptor in (self.program, *self._maps.values()):
                os.close(descriptor)
        self.program, self._maps = -1, {}

    def set_way_out(self, device: int, local: int) -> None:
        """Set the device over which frames leave. device: ifindex. local: this host's VTEP address."""
        value = np.array([(device, local)], _WAY_OUT)
        code = self._lib.bpf_map_update_elem(self._maps[_OUT], _zero(), value.ctypes.data, ANY)
        if code < 0:
            raise _refused("setting the way out", -code)

    def frames(self) -> tuple[int, int]:
        """Return the numbers of frames since loading: sent by a rule, and left to the bridge."""
        # Not os.cpu_count(): the kernel returns one count for each CPU that the machine could have.
        counts = np.zeros(_possible_cpus(), np.uint64)
        sums = []
        for kind in range(2):
            key = ctypes.c_uint32(kind)
            code = self._lib.bpf_map_lookup_elem(self._maps[_FRAMES], ctypes.byref(key), counts.ctypes.data)
            if code < 0:
                raise _refused("counting frames", -code)
            sums.append(int(counts.sum()))
        return sums[0], sums[1]

    def read(self) -> tuple[Keys, Keys]:
        """Return all rules: arrays of KEY and of RULE, in no order."""
        position = ctypes.c_uint64()
        keys, rules = np.zeros(_READ_AT_ONCE, KEY), np.zeros(_READ_AT_ONCE, RULE)
        parts: list[tuple[Keys, Keys]] = []
        code, first = 0, True
        while code == 0:
            count = ctypes.c_uint32(_READ_AT_ONCE)
            code = self._lib.bpf_map_lookup_batch(
                self._maps[_RULES],
                None if first else ctypes.byref(position),
                ctypes.byref(position),
                keys.ctypes.data,
                rules.ctypes.data,
                ctypes.byref(count),
                None,
            )
            if code < 0 and code != -errno.ENOENT:
                raise _refused("reading rules", -code)
            parts.append((keys[: count.value].copy(), rules[: count.value].copy()))
            first = False
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def write(self, keys: Keys, rules: Keys) -> tuple[int, int]:
        """Write rules in order, and replace existing ones.

        Returns the number of rules written, and the errno of the one that was refused (0 if none was).
        """
        keys, rules = np.ascontiguousarray(keys), np.ascontiguousarray(rules)
        count = ctypes.c_uint32(len(keys))
        if not len(keys):
            return 0, 0
        code = self._lib.bpf_map_update_batch(
            self._maps[_RULES], keys.ctypes.data, rules.ctypes.data, ctypes.byref(count), None
        )
        return (len(keys), 0) if code >= 0 else (int(count.value), -int(code))

    def remove(self, keys: Keys) -> None:
        """Remove rules. Keys without a rule are ignored."""
        keys = np.ascontiguousarray(keys)
        while len(keys):
            count = ctypes.c_uint32(len(keys))
            code = self._lib.bpf_map_delete_batch(
                self._maps[_RULES], keys.ctypes.data, ctypes.byref(count), None
            )
            if code >= 0:
                return
            if code != -errno.ENOENT:
                raise _refused("removing rules", -code)
            keys = np.ascontiguousarray(keys[count.value + 1 :])


def _possible_cpus() -> int:
    return int(Path("/sys/devices/system/cpu/possible").read_text().strip().split("-")[-1]) + 1


def _zero() -> ctypes.c_void_p:
    return ctypes.cast(ctypes.pointer(ctypes.c_uint32(0)), ctypes.c_void_p)


def _ask(descriptor: int, info: ctypes.Structure) -> bool:
    size = ctypes.c_uint32(ctypes.sizeof(info))
    done = library().bpf_obj_get_info_by_fd(descriptor, ctypes.byref(info), ctypes.byref(size))
    return bool(done == 0)


def _map_info(descriptor: int) -> MapInfo:
    info = MapInfo()
    if not _ask(descriptor, info):
        raise _refused("asking about a map", ctypes.get_errno())
    return info


def _sizes(descriptor: int) -> tuple[int, int]:
    info = _map_info(descriptor)
    return info.key_size, info.value_size


def _refused(action: str, number: int) -> BackendError:
    cure = "run as root" if os.geteuid() != 0 else "this kernel or container (CAP_BPF) forbids tc programs"
    return BackendError(f"tunnel program: {action} was refused ({os.strerror(number)}); {cure}")
