"""Turn Ctrl-C, SIGTERM and SIGHUP into one KeyboardInterrupt, and let the clean-up after it finish.

For: a `with` block that must leave the machine tidy. Not for: its clean-up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from contextlib import ExitStack
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AGAIN_S = 0.02


class Interrupts:
    """The first of these signals raises KeyboardInterrupt; later ones set `hurry` and raise nothing.

    A signal that arrives in a callback from C or a finaliser is not lost, though Python drops what is raised
    there. `shield()` has the same effect as a first signal. Signals that were ignored before stay ignored,
    and a SIGHUP that has a meaning of its own keeps it. Outside the main thread, where Python delivers no
    signals, it does nothing.
    """

    def __init__(self) -> None:
        self.hurry = False
        self._shielded = False
        self._before: dict[signal.Signals, signal._HANDLER] = {}
        self._on_dropped = sys.unraisablehook

    def shield(self) -> None:
        """Let signals only set `hurry` from now on."""
        self._shielded = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                before = signal.getsignal(number)
                # A closed terminal sends SIGHUP; a daemon's own handler of it reads settings again.
                if before is signal.SIG_DFL or (number is not signal.SIGHUP and before is not signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._handle)
            if self._before:
                self._on_dropped, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            sys.unraisablehook = self._on_dropped
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._shielded:
            self.hurry = True
            return
        self._shielded = True
        raise KeyboardInterrupt

    def _dropped(self, unraisable: sys.UnraisableHookArgs) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._on_dropped(unraisable)
            return
        self._shielded = False
        # An exception raised here would be dropped as well.
        again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), next(iter(self._before))))
        again.daemon = True
        again.start()


class Undone(ABC):
    """A context manager. On entry `_prepare` does the work and registers in `_undo` what the exit must do."""

    def __init__(self) -> None:
        self._undo = ExitStack()

    @abstractmethod
    def _prepare(self) -> None:
        """Do the work, and register the actions of the exit in `_undo`."""

    def __enter__(self) -> Self:
        try:
            self._prepare()
        except BaseException:
            self._undo.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
