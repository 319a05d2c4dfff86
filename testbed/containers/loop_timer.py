"""What the control loop sleeps on: descriptors, and an alarm on CLOCK_MONOTONIC to the microsecond.

For: waking it when a period has ended, a task is held or a command has ended. Not for: what is done then.
epoll's own timeout counts in milliseconds, in which a container may use a small quota up: hence the alarm.
Source: timerfd_create(2), epoll(7).
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

from twinbed import BackendError

NEVER_NS = 1 << 62
"""Later than anything."""

_NS = 1_000_000_000
_ABSOLUTE = 1
_libc = ctypes.CDLL(None, use_errno=True)


class _Moment(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Moment), ("value", _Moment))


class Alarm:
    """`descriptor` becomes readable at the moment it was last set to."""

    def __init__(self) -> None:
        self.descriptor: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise BackendError(f"no timer for the control loop: {os.strerror(ctypes.get_errno())}")
        self._setting = _Setting()

    def set(self, at_ns: int) -> None:
        """Rings at `at_ns` (ns of CLOCK_MONOTONIC), at once where that is past."""
        moment = self._setting.value
        # 0 would switch the timer off.
        moment.seconds, moment.nanoseconds = divmod(max(at_ns, 1), _NS)
        if _libc.timerfd_settime(self.descriptor, _ABSOLUTE, ctypes.byref(self._setting), None) != 0:
            raise BackendError(f"the control loop's timer: {os.strerror(ctypes.get_errno())}")

    def close(self) -> None:
        """Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class Wakeups:
    """Descriptors with what is to be called when they can be read, and the alarm."""

    def __init__(self) -> None:
        self._alarm = Alarm()
        self._epoll = select.epoll()
        self._epoll.register(self._alarm.descriptor, select.EPOLLIN)
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Until it is forgotten; `handler` must read it, or forget it."""
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """Idempotent, and may follow the descriptor's end."""
        if self._handlers.pop(descriptor, None) is not None:
            with suppress(OSError, ValueError):
                self._epoll.unregister(descriptor)

    def sleep(self, until_ns: int) -> list[Callable[[], None]]:
        """Until `until_ns` or until a descriptor can be read; the handlers of those that can."""
        self._alarm.set(until_ns)
        ready = (self._handlers.get(descriptor) for descriptor, _ in self._epoll.poll())
        return [handler for handler in ready if handler is not None]

    def close(self) -> None:
        """Idempotent."""
        self._alarm.close()
        self._epoll.close()
