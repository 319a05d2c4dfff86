"""Faults one after another while an application runs: down, up, the next one.

For: `with Cycle(...)` around an application. Not for: what a fault is (faults.py). Nothing is broken before
the first up_s are over, and on leaving nothing is broken any more.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from control.fabric import Fault, FaultKind
from testbed.fabric import faults
from testbed.fabric.apps.carried import Carried, carried
from testbed.fabric.model import Fabric

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that was: in force from at_ns to cleared_ns, CLOCK_MONOTONIC. before: what its path carried
    just then, of a fault of one uplink (None: of several)."""

    fault: Fault
    at_ns: int
    cleared_ns: int
    before: Carried | None


def round_robin(fabric: Fabric) -> list[Fault]:
    """A silent fault of each port of a ToR to a host, host by host."""
    return [
        Fault(FaultKind.PORT, host.index, uplink)
        for host in fabric.hosts
        for uplink in range(len(host.uplinks))
    ]


class Cycle(AbstractContextManager["Cycle"]):
    """`order`, again and again: each fault is there for down_s; then all is up for up_s and, where healed is
    given, until it says so: BGP needs seconds for a restored link, and a fault within them counts double."""

    def __init__(
        self,
        fabric: Fabric,
        order: Sequence[Fault],
        *,
        down_s: float,
        up_s: float,
        healed: Callable[[], bool] | None = None,
    ) -> None:
        self._fabric, self._order = fabric, order
        self._down_s, self._up_s, self._healed = down_s, up_s, healed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._strike, name="faults", daemon=True)
        self._error: Exception | None = None
        self.struck: list[Struck] = []

    def __enter__(self) -> Cycle:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _strike(self) -> None:
        try:
            for fault in itertools.cycle(self._order):
                if not self._wait_up():
                    return
                before = self._carried(fault)
                injected = faults.inject(self._fabric, fault)
                try:
                    self._over.wait(self._down_s)
                finally:
                    cleared_ns = faults.clear(self._fabric, fault)
                self.struck.append(Struck(fault, injected.at_ns, cleared_ns, before))
        except Exception as error:  # raised again by who waits for this thread
            self._error = error

    def _carried(self, fault: Fault) -> Carried | None:
        if fault.kind not in (FaultKind.PORT, FaultKind.LINK):
            return None
        host = self._fabric.hosts[fault.host]
        return carried(host, host.uplinks[fault.uplink])

    def _wait_up(self) -> bool:
        if self._over.wait(self._up_s):
            return False
        while self._healed is not None and not self._healed():
            if self._over.wait(_LOOK_EVERY_S):
                return False
        return True
