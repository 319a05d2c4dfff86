"""An alarm for epoll on CLOCK_MONOTONIC, to the microsecond.

For: waking the control loop when a period has ended. Not for: deciding when. epoll's own timeout counts in
milliseconds, as long as it takes a container to use a small quota up. Source: timerfd_create(2).
"""

from __future__ import annotations

import ctypes
import os
import time

from twinbed import BackendError

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
