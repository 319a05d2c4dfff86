"""Sleep of the control loop: on descriptors, until a moment of CLOCK_MONOTONIC, to the microsecond.

For: waking it when a period has ended, a task is held or a command has ended. Not for: the actions after it.
Python's epoll takes its timeout in milliseconds, and a container may use up a small quota within one
millisecond. So this module calls epoll_pwait2(2) (Linux 5.11, glibc 2.35). An alarm beside epoll would cost
half as much again per wake-up.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import time
from collections.abc import Callable
from contextlib import suppress

from twinbed import BackendError

_NS = 1_000_000_000
_EVENT_BYTES = 16
_TIMESPEC = struct.Struct("ll")

_wait = ctypes.CDLL(None, use_errno=True).epoll_pwait2
_wait.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class Wakeups:
    """Descriptors, each with a handler that is called when it can be read."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._timeout = bytearray(_TIMESPEC.size)
        self._event = bytearray(_EVENT_BYTES)
        # Addresses are taken once, because making a pointer takes longer than the call itself.
        self._timeout_at, self._event_at = _address(self._timeout), _address(self._event)

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Watch a descriptor until it is forgotten. `handler` must read it, or forget it."""
        self._handlers[descriptor] = handler
        self._epoll.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, even after it was closed. Idempotent."""
        if self._handlers.pop(descriptor, None) is not None:
            with suppress(OSError, ValueError):
                self._epoll.unregister(descriptor)

    def sleep(self, until_ns: int) -> list[Callable[[], None]]:
        """Sleep until `until_ns` or until a descriptor can be read; return the handlers of those that can. A
        signal may end it early, once its handler has run. Raises BackendError where the kernel refuses."""
        rest_ns = until_ns - time.monotonic_ns()
        _TIMESPEC.pack_into(self._timeout, 0, *divmod(rest_ns if rest_ns > 0 else 0, _NS))
        count = _wait(self._epoll.fileno(), self._event_at, 1, self._timeout_at, None)
        if count == 0:
            return []
        if count < 0 and ctypes.get_errno() != errno.EINTR:
            reason = os.strerror(ctypes.get_errno())
            raise BackendError(f"the control loop cannot sleep ({reason}); it needs Linux 5.11 or later")
        ready = (self._handlers.get(descriptor) for descriptor, _ in self._epoll.poll(0))
        return [handler for handler in ready if handler is not None]

    def close(self) -> None:
        """Close the descriptors of the sleep itself. Idempotent."""
        self._epoll.close()


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
