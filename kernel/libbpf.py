"""The few functions of libbpf that loading and reading need, through ctypes.

For: loader.py. Not for: anyone else. Source: libbpf 1.x, bpf.h and libbpf.h; include/uapi/linux/bpf.h for
`bpf_prog_info`.
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
"""ring_buffer_sample_fn: context, record, size; 0 to go on."""

STATS_RUN_TIME = 0
ANY = 0


class ProgramInfo(Structure):
    """struct bpf_prog_info up to run_cnt; the offsets are the kernel's interface."""

    _fields_ = (
        ("before", ctypes.c_ubyte * 192),
        ("run_time_ns", c_uint64),
        ("run_cnt", c_uint64),
    )


_FUNCTIONS = {
    "bpf_object__open_file": (c_void_p, [c_char_p, c_void_p]),
    "bpf_object__load": (c_int, [c_void_p]),
    "bpf_object__close": (None, [c_void_p]),
    "bpf_object__next_program": (c_void_p, [c_void_p, c_void_p]),
    "bpf_object__find_map_fd_by_name": (c_int, [c_void_p, c_char_p]),
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
    "bpf_enable_stats": (c_int, [c_int]),
    "bpf_obj_get_info_by_fd": (c_int, [c_int, c_void_p, POINTER(c_uint32)]),
    "libbpf_set_print": (c_void_p, [c_void_p]),
}


@cache
def library() -> CDLL:
    """libbpf with the signatures above, silenced. Raises BackendError where it is not installed."""
    try:
        loaded = CDLL("libbpf.so.1", use_errno=True)
    except OSError as error:
        raise BackendError("libbpf.so.1: not found; install it: apt install libbpf1") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.libbpf_set_print(None)
    return loaded
