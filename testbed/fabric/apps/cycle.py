"""Inject faults one after another while an application runs. Each is repaired before the next one.

For: `with Cycle(...)` around an application. Not for: making faults (faults.py). Source: our design. The
first fault comes after up_s, and nothing is broken after the block.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from control.fabric import Fault, FaultKind
from testbed.fabric import faults
from testbed.fabric.apps.paths import Carried, carried
from testbed.fabric.model import Fabric

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that is over.

    at_ns, cleared_ns: beginning and end (CLOCK_MONOTONIC, ns). before: traffic of its uplink just before it
    (None: the fault had several uplinks).
    """

    fault: Fault
    at_ns: int
    cleared_ns: int
    before: Carried | None


def round_robin(fabric: Fabric) -> list[Fault]:
    """Return a silent fault of every ToR port that leads to a host, host by host."""
    return [
        Fault(FaultKind.PORT, host.index, uplink)
        for host in fabric.hosts
        for uplink in range(len(host.uplinks))
    ]


class Cycle(AbstractContextManager["Cycle"]):
    """Inject the faults of `order` again and again.

    A fault lasts down_s. Then everything is up for up_s and, if `healed` is given, until it returns True: BGP
    needs seconds for a restored link, and a fault during that time would be a double fault.
    """

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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._over.set()
        self._thread.join()
        # An error of the block itself comes first.
        if self._error is not None and error is None:
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
        except Exception as error:  # raised again when this thread is joined
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
