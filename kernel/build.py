"""Compile C sources, once per source and set of compiler flags.

For: the BPF objects that loader.py and tunnel.py load, and other small programs. Not for: loading or starting
them. A BPF object fits every kernel with BTF (CO-RE), so it need not be built on the machine that runs it.
What was compiled is kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from twinbed import BackendError

SOURCE = Path(__file__).with_name("containers.bpf.c")
TUNNEL_SOURCE = Path(__file__).with_name("tunnel.bpf.c")

_COMPILERS = ("clang", "clang-14")
_FLAGS = ("-O2", "-g", "-Wall", "-Werror", "-target", "bpf")
_TIMEOUT_S = 300.0
_CURE = "make system-vm"


def object_file(cache: Path | None = None, source: Path | None = None) -> Path:
    """Return the path of the compiled programs. Compiles them first if they are not in the cache.

    cache: folder for the object; None: ~/.cache/twinbed. source: C source; None: SOURCE. Raises BackendError
    as `compiled` does.
    """
    machine = os.uname().machine
    architecture = {"x86_64": "x86", "aarch64": "arm64"}.get(machine, machine)
    # For the target bpf, clang does not search the folder in which Debian keeps the machine's own headers.
    here = (f"-D__TARGET_ARCH_{architecture}", f"-I/usr/include/{machine}-linux-gnu")
    return compiled(source or SOURCE, "bpf", _COMPILERS, (*_FLAGS, *here, "-c"), _CURE, cache)


def compiled(
    source: Path,
    kind: str,
    compilers: Sequence[str],
    flags: Sequence[str],
    cure: str,
    cache: Path | None = None,
) -> Path:
    """Return the path of a compiled C source. Compiles it first if it is not in the cache.

    kind: folder inside the cache. compilers: names of programs, of which the first that is installed is used.
    cure: command that installs what is missing. cache: as for `object_file`. Raises BackendError if there is
    no compiler, it refuses the source, or the cache cannot be written.
    """
    folder = (cache or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "twinbed") / kind
    digest = hashlib.sha256(source.read_bytes() + " ".join(flags).encode()).hexdigest()[:16]
    built = folder / f"{source.name.partition('.')[0]}-{digest}"
    if built.exists():
        return built
    compiler = next(filter(None, map(shutil.which, compilers)), None)
    if compiler is None:
        raise BackendError(f"{source.name}: no {compilers[0]} to compile it with; install it: {cure}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BackendError(f"{folder}: cannot be made ({error.strerror}); set XDG_CACHE_HOME") from error
    partial = folder / f".{built.name}.{os.getpid()}"
    command = [compiler, *flags, str(source), "-o", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
            raise BackendError(f"{source.name}: {compilers[0]} refused it ({first}); headers missing? {cure}")
        partial.replace(built)
    except subprocess.TimeoutExpired:
        raise BackendError(f"{source.name}: {compilers[0]} has not ended after {_TIMEOUT_S:g} s") from None
    finally:
        partial.unlink(missing_ok=True)
    return built
