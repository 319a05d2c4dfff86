"""Compile the data plane, once for each version of its source.

For: the path of the program. Not for: starting it (processes.py). Source: our design. The program is kept in
the user's cache, never in the project. `make system` runs this module, so that a fabric need not wait for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from twinbed import BackendError

SOURCE = Path(__file__).with_name("plane.c")

_COMPILERS = ("gcc", "cc", "clang")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
_TIMEOUT_S = 60
_CURE = "see make system"


def program(cache: Path | None = None) -> Path:
    """Return the path of the compiled data plane. Compiles it first if it is not in the cache.

    cache: folder for the program; None: ~/.cache/twinbed. Raises BackendError if there is no compiler, or it
    refuses the source.
    """
    root = cache or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "twinbed"
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(_FLAGS).encode()).hexdigest()[:16]
    built = root / "bfd" / f"plane-{digest}"
    if built.exists():
        return built
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise BackendError(f"gcc is not installed; {_CURE}")
    built.parent.mkdir(parents=True, exist_ok=True)
    partial = built.with_name(f".{built.name}.{os.getpid()}")
    command = [compiler, *_FLAGS, str(SOURCE), "-o", str(partial)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
            raise BackendError(f"{SOURCE.name}: the compiler refused it ({first}); {_CURE}")
        partial.replace(built)
    finally:
        partial.unlink(missing_ok=True)
    return built


if __name__ == "__main__":
    try:
        program()
    except BackendError as error:
        sys.stderr.write(f"system: {error}\n")
