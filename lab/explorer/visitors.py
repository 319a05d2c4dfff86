"""Bounds how many tabs of all visitors are open at once.

For: who is let in. Not for: what a tab shows, or the work that it asks for (lab.explorer.queue).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from lab.explorer import limits


class Tabs:
    """most: tabs that may be open at once. Every method may be called by any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._present: dict[str, Callable[[], bool]] = {}

    def admit(self, tab: str, present: Callable[[], bool]) -> bool:
        """Returns whether the tab has a place, and gives it one that is free. present: whether it is
        connected; a tab that is not gives up its place."""
        with self._lock:
            self._present = {name: is_there for name, is_there in self._present.items() if is_there()}
            if tab not in self._present and len(self._present) >= self._most:
                return False
            self._present[tab] = present
            return True


TABS = Tabs(limits.TABS)
"""The tabs of this server."""
