"""Compile the data plane, once for each version of its source.

For: the path of the program. Not for: starting it (processes.py). Source: our design. The program is kept in
the user's cache, never in the project. `make system` runs this module, so that a fabric need not wait for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kernel.build import compiled
from twinbed import BackendError

SOURCE = Path(__file__).with_name("plane.c")

_COMPILERS = ("gcc", "cc", "clang")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")


def program() -> Path:
    """Return the path of the compiled data plane. Compiles it first if it is not in the cache.

    Raises BackendError if there is no compiler, or it refuses the source.
    """
    return compiled(SOURCE, "bfd", _COMPILERS, _FLAGS, "make system")


if __name__ == "__main__":
    try:
        program()
    except BackendError as error:
        sys.stderr.write(f"system: {error}\n")
