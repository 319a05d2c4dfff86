"""Keeps objects in the server's memory under names in addresses, so that a reload finds them again.

For: jobs, uploads and answers, which do not fit into an address. Not for: the state of a session
(lab.explorer.session). A name cannot be guessed; a user with the address may see the object.
"""

from __future__ import annotations

import secrets
import threading
import time
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Shelf(Generic[Thing]):
    """Objects by name. most: number of objects that are kept; the longest unused one is dropped first.
    keep_s: time for which an unused object is kept, s. Any thread may call every method."""

    def __init__(self, most: int, keep_s: float) -> None:
        self._most, self._keep_s = most, keep_s
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[float, Thing]] = {}

    def put(self, thing: Thing) -> str:
        """Keep an object and return its new name."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._use(name, thing)
        return name

    def get(self, name: str) -> Thing | None:
        """Return the object of this name, None if it is no longer kept. A used object stays."""
        with self._lock:
            if name not in self._kept:
                return None
            _, thing = self._kept.pop(name)
            self._use(name, thing)
            return thing

    def drop(self, name: str) -> None:
        """Forget the object of this name."""
        with self._lock:
            self._kept.pop(name, None)

    def clear(self) -> None:
        """Forget all objects, to free memory."""
        with self._lock:
            self._kept.clear()

    def _use(self, name: str, thing: Thing) -> None:
        now = time.monotonic()
        self._kept[name] = now, thing
        fresh = [key for key, (used, _) in self._kept.items() if now - used <= self._keep_s]
        self._kept = {key: self._kept[key] for key in fresh[-self._most :]}
