"""Wake an event loop to a tenth of a millisecond. Its own timers only have whole milliseconds.

For: sending requests on time. Not for: uses in which a millisecond does not matter. It uses Linux's timerfd
(timerfd_create(2)) through the C library: Python has it only since 3.13.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from contextlib import suppress
from typing import Self

from twinbed import BackendError

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Time(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class Timer:
    """One alarm in the running event loop, which sets `rung`. Use it as a context manager."""

    def __init__(self, rung: asyncio.Event) -> None:
        self._rung = rung

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._descriptor = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise BackendError(
                f"timerfd_create: {os.strerror(ctypes.get_errno())}; allow more open files (`ulimit -n`)"
            )
        self._loop.add_reader(self._descriptor, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def set(self, at_ns: int) -> None:
        """Ring at `at_ns` (CLOCK_MONOTONIC), at once if it is past. Replaces an earlier setting."""
        alarm = _Time(0, 0, *divmod(max(at_ns, 1), 1_000_000_000))
        _libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(alarm), None)

    def _ring(self) -> None:
        with suppress(BlockingIOError):  # the alarm was set anew just after it rang
            os.read(self._descriptor, 8)
        self._rung.set()
