"""Load the programs of containers.bpf.c through bcc, which compiles them against the running kernel's
headers.

For: loader.py. Not for: reading the records. bcc cannot find where a kernel keeps the fields of
kernel/sched/sched.h, because no header package has that file. Their offsets are therefore read from the
kernel's own type information (BTF) and given to the source as macros. Source: bcc 0.26,
docs/reference_guide.md.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from kernel.build import SOURCE
from kernel.libbpf import field_offset
from kernel.loader import MAPS, Programs
from twinbed import BackendError

_DEBIAN = Path("/usr/lib/python3/dist-packages")
"""Folder of Debian's python3-bpfcc, which virtual environments do not search."""

_CURE = "make system-vm (for the VM's kernel)"
_PREFIX = "kfunc__"

# bcc wants operations on its maps as methods, and does not find them in macros.
_AS_BCC_WRITES_IT = (
    (re.compile(r"bpf_map_lookup_elem\(&(\w+), "), r"\1.lookup("),
    (re.compile(r"bpf_ringbuf_reserve\(&(\w+), (.*), 0\)"), r"\1.ringbuf_reserve(\2)"),
)
_FIELD = re.compile(r"(?<!#define )\bFIELD\((\w+), .*?, (\w+)\)")


def by_bcc() -> Programs:
    """Compile, load and attach the programs.

    Raises BackendError if bcc or the kernel's headers are not installed, this kernel has no BTF, or this
    kernel or user may not load the programs.
    """
    text = SOURCE.read_text()
    flags = ["-DBCC"]
    for owner, field in _FIELD.findall(text):
        flags.append(f"-D{owner}_{field}={field_offset(owner, field)}")
    for pattern, replacement in _AS_BCC_WRITES_IT:
        text = pattern.sub(replacement, text)
    try:
        # bcc attaches every function whose name begins with `kfunc__` by itself.
        loaded = _bcc().BPF(text=text.encode(), cflags=flags)
    except Exception as error:  # bcc raises nothing more specific
        raise BackendError(f"bcc: {error}; it needs root and a kernel that is not locked down") from error
    programs = {name.decode().removeprefix(_PREFIX): function.fd for name, function in loaded.funcs.items()}
    return Programs(programs, {name: loaded[name.encode()].map_fd for name in MAPS}, loaded.cleanup)


def available() -> tuple[bool, str]:
    """Return whether bcc and this kernel's headers are installed; if not, what is missing and the cure."""
    headers = Path("/lib/modules", os.uname().release, "build")
    if not (_DEBIAN / "bcc").is_dir():
        return False, f"bcc is not installed (Debian's python3-bpfcc): {_CURE}"
    if not headers.exists():
        return False, f"{headers}: headers of this kernel, for bcc, are not installed: {_CURE}"
    return True, f"{_DEBIAN / 'bcc'}, {headers}"


def _bcc() -> Any:
    installed, reason = available()
    if not installed:
        raise BackendError(reason)
    sys.path.append(str(_DEBIAN))
    try:
        return importlib.import_module("bcc")
    finally:
        sys.path.remove(str(_DEBIAN))
