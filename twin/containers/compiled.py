"""The one way kernels are compiled here. Not for: kernels themselves.

Numba caches a kernel by its own file, so kernels that call each other live in the same module:
otherwise a change in one file would leave a stale copy in another's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """`function` compiled on first use and cached on disk; division by zero gives inf or NaN as in NumPy."""
    return cast(_Function, njit(cache=True, error_model="numpy")(function))
