"""Decorators that compile kernels by Numba and keep them on disk.

For: all kernels of the twin. Not for: kernels themselves.

Numba keeps a compiled kernel until the kernel's own file changes. A kernel that contains kernels of other
files would then be stale. `package_kernel` and `inlined` are for such kernels: they are compiled anew when
any Python file of their folder or of this one, or a rule of `control` that they contain, has changed.

Numba would compile a kernel once more for each constant and each width of integer with which other kernels
call it. Ours are compiled once, for 64 bits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import caching, types

from control.allocator.autothrottle_settle import settle_captains
from control.allocator.backoff import wait_s
from control.allocator.escra_memory_settle import grant
from control.allocator.escra_settle import settle
from control.scheduler import loops

_RULES = {Path(inspect.getfile(rule)) for rule in (settle, settle_captains, grant, wait_s, loops)}
"""Files of `control` whose functions kernels contain."""

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
"""Options of all kernels. Nothing calls a kernel from C, and the function for that takes time to compile."""

_SHORTER = {types.int8, types.int16, types.int32, types.uint8, types.uint16, types.uint32}
"""Integers of fewer than 64 bits."""

_Function = TypeVar("_Function", bound=Callable[..., object])


def kernel(function: _Function) -> _Function:
    """Return `function` compiled at first use and cached on disk. All kernels that it calls must be in its
    own file.

    Division by zero gives inf or NaN, as in NumPy.
    """
    return cast(_Function, _widened(njit(cache=True, **_OPTIONS)(function)))


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function of another package compiled, the same one for every caller.

    It is inlined into kernels that call it, and cached as long as its own file does not change.
    """
    return cast(Callable[..., Any], _widened(njit(cache=True, forceinline=True, **_OPTIONS)(function)))


def package_kernel(function: _Function) -> _Function:
    """Return a `kernel` that may call kernels of other files of its folder and of this one."""
    return _compiled(function, False)


def inlined(function: _Function) -> _Function:
    """Return a `package_kernel` that is inlined into each of its callers, because a call would cost too much.

    In the request engine, calls would cost half of an event's time.
    """
    return _compiled(function, True)


def released(function: _Function) -> _Function:
    """Return a `package_kernel` that releases Python's interpreter lock while it runs."""
    return _compiled(function, False, nogil=True)


def vectorised(function: _Function) -> _Function:
    """Return a `package_kernel` whose arrays never overlap.

    The compiler then does several rows of a loop at once, however many arrays the loop has. Otherwise it has
    to compare the arrays' addresses first, and gives up beyond a few.
    """
    return _compiled(function, False, apart=True)


def _compiled(
    function: _Function, forceinline: bool, *, nogil: bool = False, apart: bool = False
) -> _Function:
    dispatcher = _widened(njit(forceinline=forceinline, nogil=nogil, **_OPTIONS)(function))
    dispatcher._cache = _FolderCache(function)  # type: ignore[no-untyped-call]
    if apart:
        dispatcher._compiler._customize_flags = _never_overlapping
    return cast(_Function, dispatcher)


def _never_overlapping(flags: Any) -> Any:
    flags.noalias = True
    return flags


def _widened(dispatcher: Any) -> Any:
    """Let kernels that call this one give it int64 for shorter integers and constants. Returns the
    dispatcher.
    """
    typed = dispatcher.get_call_template

    def template(args: Sequence[Any], kws: dict[str, Any]) -> Any:
        return typed([_wide(kind) for kind in args], {name: _wide(kind) for name, kind in kws.items()})

    dispatcher.get_call_template = template
    return dispatcher


def _wide(kind: Any) -> Any:
    plain = types.unliteral(kind)  # type: ignore[no-untyped-call]
    return types.int64 if plain in _SHORTER else plain


class _FolderStamp:
    """A cache locator whose stamp covers all Python files of the function's folder, of this folder, and the
    rules."""

    _py_file: str

    def get_source_stamp(self) -> tuple[tuple[str, int, int], ...]:
        folders = {Path(self._py_file).parent, Path(__file__).parent}
        files = sorted({file for folder in folders for file in folder.glob("*.py")} | _RULES)
        stats = [(path.name, path.stat()) for path in files]
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


class _FolderCacheImplementation(caching.CompileResultCacheImpl):
    _locator_classes: list[Any] = [  # noqa: RUF012 - numba's own declaration
        type(locator.__name__, (_FolderStamp, locator), {})
        for locator in caching.CacheImpl._locator_classes[:3]
    ]


class _FolderCache(caching.FunctionCache):
    _impl_class = _FolderCacheImplementation
