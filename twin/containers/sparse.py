"""Arrays of which little is written to.

For: rooms with a row per container, whose ends most containers never reach. Not for: arrays that are filled.
"""

from __future__ import annotations

import mmap
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", bound=np.generic)


def sparse_zeros(shape: tuple[int, ...], dtype: type[_Number]) -> NDArray[_Number]:
    """Return zeros that take memory by pages of 4 KiB, and only where they are written to."""
    # The kernel would give pages of 2 MiB to an array of this size.
    size = max(1, prod(shape) * np.dtype(dtype).itemsize)
    room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, dtype, prod(shape)).reshape(shape)
