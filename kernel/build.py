"""Compile BPF programs to relocatable objects, once per source and set of compiler flags.

For: the objects that loader.py and tunnel.py load. Not for: loading them. An object fits every kernel with
BTF (CO-RE), so it need not be built on the machine that runs it. It is kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from twinbed import BackendError

SOURCE = Path(__file__).with_name("containers.bpf.c")
TUNNEL_SOURCE = Path(__file__).with_name("tunnel.bpf.c")

_COMPILERS = ("clang", "clang-14")
_FLAGS = ("-O2", "-g", "-Wall", "-Werror", "-target", "bpf")
_TIMEOUT_S = 300
_CURE = "make system-vm"


def object_file(cache: Path | None = None, source: Path | None = None) -> Path:
    """Return the path of the compiled programs. Compiles them first if they are not in the cache.

    cache: folder for the object; None: ~/.cache/twinbed. source: C source; None: SOURCE. Raises BackendError
    if there is no compiler, or it refuses the source.
    """
    source = source or SOURCE
    folder = (cache or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "twinbed") / "bpf"
    digest = hashlib.sha256(source.read_bytes() + " ".join(_command()).encode()).hexdigest()[:16]
    built = folder / f"{source.name.partition('.')[0]}-{digest}.o"
    if built.exists():
        return built
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise BackendError(f"{source.name}: no clang to compile it with; install it: {_CURE}")
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{built.name}.{os.getpid()}"
    try:
        _compile(source, [compiler, *_command(), "-c", str(source), "-o", str(partial)])
        partial.replace(built)
    finally:
        partial.unlink(missing_ok=True)
    return built


def _command() -> list[str]:
    machine = os.uname().machine
    architecture = {"x86_64": "x86", "aarch64": "arm64"}.get(machine, machine)
    # For the target bpf, clang does not search the folder in which Debian keeps the machine's own headers.
    return [*_FLAGS, f"-D__TARGET_ARCH_{architecture}", f"-I/usr/include/{machine}-linux-gnu"]


def _compile(source: Path, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise BackendError(f"{source.name}: clang refused it ({first}); headers missing? {_CURE}")
