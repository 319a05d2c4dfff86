"""Call the libbpf functions that loading and reading need, through ctypes.

For: the loaders and tunnel.py. Not for: other modules. Source: libbpf 1.x, bpf.h, btf.h and libbpf.h;
include/uapi/linux/bpf.h for `bpf_prog_info` and `bpf_map_info`.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CDLL,
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache

from twinbed import BackendError

ON_RECORD = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)
"""ring_buffer_sample_fn: takes context, record and size, and returns 0 to continue."""

STATS_RUN_TIME = 0
ANY = 0
_BTF_STRUCT = 4


class ProgramInfo(Structure):
    """struct bpf_prog_info up to run_cnt. The offsets are part of the kernel's interface."""

    _fields_ = (
        ("kind", c_uint32),
        ("id", c_uint32),
        ("instructions", ctypes.c_ubyte * 44),
        ("nr_map_ids", c_uint32),
        ("map_ids", c_uint64),
        ("name", ctypes.c_char * 16),
        ("between", ctypes.c_ubyte * 112),
        ("run_time_ns", c_uint64),
        ("run_cnt", c_uint64),
    )


class MapInfo(Structure):
    """struct bpf_map_info up to name."""

    _fields_ = (
        ("kind", c_uint32),
        ("id", c_uint32),
        ("key_size", c_uint32),
        ("value_size", c_uint32),
        ("max_entries", c_uint32),
        ("map_flags", c_uint32),
        ("name", ctypes.c_char * 16),
    )


_FUNCTIONS = {
    "bpf_object__open_file": (c_void_p, [c_char_p, c_void_p]),
    "bpf_object__load": (c_int, [c_void_p]),
    "bpf_object__close": (None, [c_void_p]),
    "bpf_object__next_program": (c_void_p, [c_void_p, c_void_p]),
    "bpf_object__find_map_by_name": (c_void_p, [c_void_p, c_char_p]),
    "bpf_object__find_map_fd_by_name": (c_int, [c_void_p, c_char_p]),
    "bpf_map__set_max_entries": (c_int, [c_void_p, c_uint32]),
    "bpf_program__name": (c_char_p, [c_void_p]),
    "bpf_program__fd": (c_int, [c_void_p]),
    "bpf_program__attach": (c_void_p, [c_void_p]),
    "bpf_link__destroy": (c_int, [c_void_p]),
    "ring_buffer__new": (c_void_p, [c_int, ON_RECORD, c_void_p, c_void_p]),
    "ring_buffer__epoll_fd": (c_int, [c_void_p]),
    "ring_buffer__add": (c_int, [c_void_p, c_int, ON_RECORD, c_void_p]),
    "ring_buffer__consume": (c_int, [c_void_p]),
    "ring_buffer__free": (None, [c_void_p]),
    "bpf_map_update_elem": (c_int, [c_int, c_void_p, c_void_p, c_uint64]),
    "bpf_map_delete_elem": (c_int, [c_int, c_void_p]),
    "bpf_map_lookup_elem": (c_int, [c_int, c_void_p, c_void_p]),
    "bpf_map_lookup_batch": (c_int, [c_int, *[c_void_p] * 4, POINTER(c_uint32), c_void_p]),
    "bpf_map_update_batch": (c_int, [c_int, c_void_p, c_void_p, POINTER(c_uint32), c_void_p]),
    "bpf_map_delete_batch": (c_int, [c_int, c_void_p, POINTER(c_uint32), c_void_p]),
    "bpf_prog_get_fd_by_id": (c_int, [c_uint32]),
    "bpf_map_get_fd_by_id": (c_int, [c_uint32]),
    "bpf_enable_stats": (c_int, [c_int]),
    "bpf_obj_get_info_by_fd": (c_int, [c_int, c_void_p, POINTER(c_uint32)]),
    "btf__load_vmlinux_btf": (c_void_p, []),
    "btf__find_by_name_kind": (c_int, [c_void_p, c_char_p, c_uint32]),
    "btf__type_by_id": (POINTER(c_uint32), [c_void_p, c_uint32]),
    "btf__name_by_offset": (c_char_p, [c_void_p, c_uint32]),
    "libbpf_set_print": (c_void_p, [c_void_p]),
}


@cache
def library() -> CDLL:
    """Return libbpf with the signatures above, silenced. Raises BackendError if it is not installed."""
    try:
        loaded = CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise BackendError("libbpf.so.1: not found; install it: apt install libbpf1") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.libbpf_set_print(None)
    return loaded


@cache
def _kernel_types() -> int:
    types = library().btf__load_vmlinux_btf()
    if not types:
        raise BackendError("/sys/kernel/btf/vmlinux: this kernel has no type information (BTF)")
    return int(types)


def field_offset(owner: str, field: str) -> int:
    """Return the offset of a field in a struct of the running kernel, bytes.

    Raises BackendError if the kernel has no type information, or no such field. Source: the kernel's
    Documentation/bpf/btf.rst, BTF_KIND_STRUCT.
    """
    lib, types = library(), _kernel_types()
    number = lib.btf__find_by_name_kind(types, owner.encode(), _BTF_STRUCT)
    # struct btf_type: name, info (the low 16 bits count the members), size; then members: name, type, bit
    # offset.
    words = lib.btf__type_by_id(types, max(number, 0))
    for member in range(words[1] & 0xFFFF if number > 0 else 0):
        name, _, bits = words[3 + 3 * member : 6 + 3 * member]
        if lib.btf__name_by_offset(types, name).decode() == field:
            return int(bits & 0xFFFFFF) // 8
    raise BackendError(f"this kernel has no field {field} in struct {owner}")
