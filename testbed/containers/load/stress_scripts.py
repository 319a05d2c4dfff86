"""Containers that follow arrays of demand, and the client that starts them together.

For: running a twin's workload on real containers. Give `containers`, and the object itself as the client, to
host.loop.control. Not for: the load itself (stress.py).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.fleet import Managed
from testbed.containers.load.stress import NS
from twinbed import ScenarioError
from twinbed.writing import whole

_LEAD_NS = 100_000_000


class StressScripts:
    """N stress containers, and `ports.Client` for them.

    folder: folder for their scripts, made if it does not exist.
    demand_cores: float64[T, N], CPU work that arrives in each period over its length, cores.
    memory_bytes: int64[T, N], memory in each period, bytes.
    threads: int[N], most CPUs that each uses at once. app: int64[N], index of each application.
    peak_cores, peak_bytes: [N], profiled maxima; None: not profiled.
    present: bool[T, N], a container joins at its first True and leaves after its last; None: always True.
    Raises ScenarioError for arrays whose shapes do not match.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        demand_cores: NDArray[np.float64],
        memory_bytes: NDArray[np.int64],
        *,
        threads: Sequence[int] | None = None,
        period_s: float = 0.1,
        app: Sequence[int] | None = None,
        peak_cores: Sequence[float] | None = None,
        peak_bytes: Sequence[int] | None = None,
        present: NDArray[np.bool_] | None = None,
    ) -> None:
        if demand_cores.shape != memory_bytes.shape or demand_cores.shape[1:] != (len(names),):
            raise ScenarioError(
                f"stress scripts of {len(names)} containers: demand is {demand_cores.shape}, memory "
                f"{memory_bytes.shape}; expected both [periods, containers]"
            )
        self._folder, self._names, self._period_s = folder, tuple(names), period_s
        self._present = np.ones(demand_cores.shape, np.bool_) if present is None else present
        self._demand, self._memory = demand_cores * self._present, memory_bytes
        self._threads = threads or [1] * len(names)
        self._app = app or [0] * len(names)
        self._peak_cores, self._peak_bytes = peak_cores, peak_bytes
        self._begin_ns = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._begin.unlink(missing_ok=True)

    @property
    def duration_s(self) -> float:
        """Length of the scripts, s."""
        return len(self._demand) * self._period_s

    @property
    def containers(self) -> list[Managed]:
        """Return the containers for loop.control, and write their scripts."""
        return [self._container(index) for index in range(len(self._names))]

    def start(self) -> int:
        """Let period 0 of all scripts begin a moment from now. Returns that moment, ns."""
        self._begin_ns = time.monotonic_ns() + _LEAD_NS
        with whole(self._begin) as file:
            file.write(str(self._begin_ns).encode())
        return self._begin_ns

    def running(self) -> bool:
        """Return True until the scripts have ended."""
        return time.monotonic_ns() < self._begin_ns + round(self.duration_s * NS)

    def stop(self) -> None:
        """Do nothing, because only the containers run."""

    @property
    def _begin(self) -> Path:
        return self._folder / "begin"

    def _container(self, index: int) -> Managed:
        name = self._names[index]
        ready = self._folder / f"{name}.ready"
        done = self._folder / f"{name}.done"
        for file in (ready, done):
            file.unlink(missing_ok=True)
        script = self._folder / f"{name}.json"
        script.write_text(
            json.dumps(
                {
                    "period_s": self._period_s,
                    "demand_cores": self._demand[:, index].tolist(),
                    "memory_bytes": self._memory[:, index].tolist(),
                    "threads": int(self._threads[index]),
                    "begin": str(self._begin),
                    "ready": str(ready),
                    "done": str(done),
                }
            )
        )
        present = np.flatnonzero(self._present[:, index])
        first, last = int(present[0]), int(present[-1]) + 1
        return Managed(
            ContainerSpec(name, (sys.executable, "-m", "testbed.containers.load.stress", str(script))),
            app=int(self._app[index]),
            peak_cores=None if self._peak_cores is None else float(self._peak_cores[index]),
            peak_bytes=None if self._peak_bytes is None else int(self._peak_bytes[index]),
            ready=lambda: _alive(ready),
            begins_s=first * self._period_s,
            ends_s=None if last == len(self._demand) else last * self._period_s,
        )


def _alive(ready: Path) -> bool:
    """Return whether the process that last reported ready still runs."""
    try:
        os.kill(int(ready.read_text()), 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return True
