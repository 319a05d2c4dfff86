"""Hold the tasks of a group at its memory limit, report them, and let them continue when the limit is raised.

For: the trap of either cgroup version, without code in the kernel. Not for: grants (control), nor the limits
themselves (v1.py, memory_v2.py). The two versions promise different things; see each class. Sources:
Documentation/admin-guide/cgroup-v1/memory.rst (10. OOM control), cgroup-v2.rst (memory.high, memory.events),
inotify(7).
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from testbed.containers.cgroup.files import ControlFile, field, refused, write
from testbed.containers.cgroup.memory_v2 import MemoryV2
from testbed.containers.ports import GroupGoneError
from testbed.waiting import until
from twinbed import BackendError

SURRENDER_TIMEOUT_S = 0.1
"""Longest wait of a surrender for the OOM killer before the trap is armed again, s."""

_POLL_S = 0.0002
_IN_MODIFY = 0x2
_EVENTS_BYTES = 4_096
_libc = ctypes.CDLL(None, use_errno=True)


class TrapV1:
    """The trap of version 1: `memory.oom_control` is 1, and an eventfd is registered with
    `cgroup.event_control`.

    A task that needs a page beyond the limit sleeps in its page fault until memory is freed or the limit is
    raised, however long that takes. No task is killed. Only charges of page faults are held: a `fork`, or a
    write to a socket, gets ENOMEM. A held task that is killed dies.
    """

    def __init__(self, directory: Path) -> None:
        self._control = ControlFile(directory / "memory.oom_control", os.O_RDWR)
        self._descriptor = -1
        try:
            self._found = field(self._control.read(), b"oom_kill_disable")
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            listener = f"{self._descriptor} {self._control.descriptor}"
            write(directory / "cgroup.event_control", listener)
            self._control.write("1")
        except BaseException:
            self.close()
            self._control.close()
            raise

    @property
    def descriptor(self) -> int:
        """File descriptor that becomes readable when a task was held; −1 once the trap is closed."""
        return self._descriptor

    def held(self) -> bool:
        """Drain the descriptor and return whether tasks are held now."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        return field(self._control.read(), b"under_oom") == 1

    def surrender(self) -> None:
        """Let the OOM killer kill the held tasks, and arm the trap again once it has killed. Wait at most
        SURRENDER_TIMEOUT_S for that. Tasks that still need memory then are held and reported again."""
        kills = field(self._control.read(), b"oom_kill")
        self._control.write("0")
        until(lambda: field(self._control.read(), b"oom_kill") != kills, SURRENDER_TIMEOUT_S, _POLL_S)
        self._control.write("1")

    def close(self) -> None:
        """End the trap; the OOM killer acts as it did before. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        os.close(descriptor)
        try:
            self._control.write(str(self._found))
        except GroupGoneError:
            pass
        finally:
            self._control.close()


class TrapV2:
    """The trap of version 2: `memory.high` is the limit, `memory.max` lies above it, inotify watches
    `memory.events`.

    Version 2 cannot hold a task. A task that charges beyond the limit gets its page, and is put to sleep on
    its way back to user space: the further the group is above the line, the longer (at most 2 s, then again).
    So three things differ from version 1. The limit is exceeded, by up to memory_v2.HEADROOM_BYTES. A raise
    takes effect when the present sleep is over, not at once. A group that gets no raise slowly reaches
    memory.max, in about half a minute, and is killed there. Figures and alternatives: docs/decisions/0011.
    """

    def __init__(self, lines: MemoryV2, events: Path) -> None:
        self._lines = lines
        self._descriptor = _watch(events)
        try:
            lines.arm()
        except BaseException:
            self.close()
            raise

    @property
    def descriptor(self) -> int:
        """Descriptor that becomes readable when a task went beyond the limit; −1: the trap is closed."""
        return self._descriptor

    def held(self) -> bool:
        """Drain the descriptor and return whether the group is above its limit now."""
        with suppress(BlockingIOError):
            os.read(self._descriptor, _EVENTS_BYTES)
        return self._lines.exceeded()

    def surrender(self) -> None:
        """Let the OOM killer act at the limit. The trap is armed again once it has killed, which is an event
        read by `held`, or when the limit is set again."""
        self._lines.enforce()

    def close(self) -> None:
        """End the trap. The kernel kills beyond the limit again. Idempotent."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        os.close(descriptor)
        with suppress(GroupGoneError):
            self._lines.disarm()


def _watch(path: Path) -> int:
    """Return an inotify descriptor that becomes readable when the kernel changed the file."""
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        raise BackendError(
            f"{path}: no inotify instance ({error.strerror}); raise sysctl fs.inotify.max_user_instances"
        )
    if _libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        os.close(descriptor)
        raise refused(path, "watching it", error)
    return descriptor
