"""The public histories on which advice is judged, and which of them were seen while it was developed.

For: `SETS`. Not for: judging (halves.py). Histories that were seen chose the method; the others were first
looked at for the page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from traces.load import load
from traces.schema import UsageTrace

_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class History:
    """One history of a set. name: name of the set. part: its history in the set. seen: whether it was used
    during development. folder: its folder below the public data sets. options: options of the reader; None:
    memory of containers without CPU."""

    name: str
    part: str
    seen: bool
    folder: str
    options: dict[str, Any] | None

    def read(self, data: Path) -> UsageTrace:
        """Return the trace. Raises TraceError, and FileNotFoundError if the set is not there."""
        path = data / self.folder
        if not path.exists():
            raise FileNotFoundError(path)
        return _memory_only(path) if self.options is None else load(path, **self.options)


def _all() -> Iterator[History]:
    own: dict[str, Any]
    nezha = "nezha_pod_metrics_1min"
    for app, days in (
        ("TrainTicket", ("2023-01-29", "2023-01-30")),
        ("OnlineBoutique", ("2022-08-22", "2022-08-23")),
    ):
        for day in days:
            yield History(f"Nezha, {app}", day, day == days[0], nezha, {"app": app, "day": day})
    for service in ("carts", "orders", "payment"):
        for fault in ("cpu", "mem"):
            for rep in range(1, 6):
                for phase in ("normal", "anomalous"):
                    seen = (service, fault, rep, phase) == ("carts", "cpu", 1, "normal")
                    part = f"{service} {fault} {rep}"
                    own = {"fault_service": service, "fault": fault, "rep": rep, "phase": phase}
                    yield History(f"Sock Shop, {phase}", part, seen, "rcd_sockshop_1s", own)
    yield History("Social network", "", True, "deathstarbench_socialnetwork_10s", {})
    for number in range(1, 11):
        own = {"day": number}
        yield History("Google jobs", f"day {number}", number <= 2, "google_cluster_1600_jobs_5min", own)
    for number in range(1, 8):
        own = {"day": number}
        yield History("SURF jobs, CPU only", f"day {number}", number == 1, "surf_hpc_week_30s", own)
    bitbrains = "bitbrains_small_5min"
    yield History("Bitbrains, CPU only", "", True, f"{bitbrains}/bitbrains_50vms.csv.gz", {})
    yield History("Bitbrains, one VM", "", True, f"{bitbrains}/bitbrains_1vm_full_metrics.csv.gz", {})
    yield History(
        "GenAI serving, memory only", "", False, "alibaba_genai_serving/container_memory_util.csv.gz", None
    )


SETS = tuple(_all())


def _memory_only(path: Path) -> UsageTrace:
    """Return containers of which only memory is known, as a share of an unknown limit taken as 1 GiB.

    Samples are put on the grid of their usual distance; a container is absent where it has none.
    """
    frame = pd.read_csv(path)
    frame = frame[frame["container"].notna() & (frame["container"] != "none")]
    steps = np.diff(np.unique(frame["t_s"]))
    step_s = float(np.median(steps[steps > 0]))
    row = np.floor((frame["t_s"] - frame["t_s"].min()) / step_s).astype(int)
    grid = frame.assign(row=row).pivot_table(
        index="row", columns="container", values="mem_util_fraction", aggfunc="max"
    )
    grid = grid.reindex(range(int(row.max()) + 1))
    present = np.ascontiguousarray(grid.notna().to_numpy())
    memory = np.ascontiguousarray(np.clip(np.nan_to_num(grid.to_numpy(np.float64)), 0, None) * _GIB)
    return UsageTrace(
        containers=tuple(map(str, grid.columns)),
        apps=("serving",) * memory.shape[1],
        start_s=0.0,
        interval_s=step_s,
        cpu_cores=np.zeros(memory.shape),
        memory_bytes=memory,
        present=present,
    )
