"""Sock Shop containers, CPU and memory every second.

Source: RCD (NeurIPS 2022), github.com/azamikram/rcd. 60 runs of about five minutes: three services × CPU
hog or memory leak × five repetitions, each in a normal and an anomalous phase; one run is one trace. CPU
is percent of a core, memory bytes. Caveats: CPU is a Prometheus rate() over tens of seconds, so
neighbouring samples repeat and the bursts within the window are gone; request rates and latencies are
not read. No sample is missing, none is filled.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers import table
from traces.readers.regular import onto_grid
from traces.schema import UsageTrace

FILES = ("sockshop_container_metrics_1s.csv.gz",)
COLUMNS = ("fault_service", "fault", "rep", "phase", "time")
_INTERVAL_S = 1.0
_MAX_HOLD_S = 5.0


def recognises(columns: list[str]) -> bool:
    """Whether these are the columns of the data set."""
    return set(COLUMNS) <= set(columns)


def read(
    path: Path, *, fault_service: str = "carts", fault: str = "cpu", rep: int = 1, phase: str = "normal"
) -> UsageTrace:
    """One run. fault_service: carts, orders or payment; fault: cpu or mem; rep: 1 to 5; phase: normal or
    anomalous. Raises TraceError naming what there is when there is no such run."""
    services = [name.removesuffix("_cpu") for name in table.header(path) if name.endswith("_cpu")]
    columns = [*COLUMNS, *(f"{s}_cpu" for s in services), *(f"{s}_mem" for s in services)]
    frame = table.read_known(path, columns, fault_service="str", fault="str", phase="str")
    for name, value in (("fault_service", fault_service), ("fault", fault), ("rep", rep), ("phase", phase)):
        table.one_of(path, name, value, frame[name])
        frame = frame[frame[name] == value]
    cpu = frame.melt("time", [f"{s}_cpu" for s in services], "container", "cpu")
    memory = frame.melt("time", [f"{s}_mem" for s in services], value_name="memory")["memory"]
    grid = onto_grid(
        path,
        cpu["container"].str.removesuffix("_cpu"),
        cpu["time"].to_numpy(np.float64),
        {
            "cpu_cores": cpu["cpu"].to_numpy(np.float64) / 100,
            "memory_bytes": memory.to_numpy(np.float64),
        },
        interval_s=_INTERVAL_S,
        max_hold_s=_MAX_HOLD_S,
    )
    return UsageTrace(
        containers=grid.containers,
        apps=("sock-shop",) * len(grid.containers),
        start_s=grid.start_s,
        interval_s=_INTERVAL_S,
        cpu_cores=grid.values["cpu_cores"],
        memory_bytes=grid.values["memory_bytes"],
        present=grid.present,
        metadata={"source": "RCD Sock Shop", "run": f"{fault_service} {fault} {rep} {phase}"},
        notes=(
            f"Sock Shop, run {fault_service}/{fault}/{rep}, {phase} phase.",
            "CPU was smoothed at the source (Prometheus rate over tens of seconds).",
            *grid.notes,
        ),
    )
