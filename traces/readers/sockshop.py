"""Read the Sock Shop data set: CPU and memory of containers every second.

Source: RCD (NeurIPS 2022), github.com/azamikram/rcd. It has 60 runs of about five minutes: three services ×
CPU hog or memory leak × five repetitions, each in a normal and an anomalous phase. One run is one trace. CPU
is in percent of a core, memory in bytes. Caveats: CPU is a Prometheus rate() over tens of seconds, so
neighbouring samples repeat, and bursts within the window are lost. Request rates and latencies are not read.
No sample is missing and none is filled.
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


def read(
    path: Path, *, fault_service: str = "carts", fault: str = "cpu", rep: int = 1, phase: str = "normal"
) -> UsageTrace:
    """Return one run.

    fault_service: carts, orders or payment. fault: cpu or mem. rep: 1 to 5. phase: normal or anomalous.
    Raises TraceError, which lists the known values, if there is no such run.
    """
    services = [name.removesuffix("_cpu") for name in table.header(path) if name.endswith("_cpu")]
    columns = [*COLUMNS, *(f"{s}_cpu" for s in services), *(f"{s}_mem" for s in services)]
    frame = table.read_known(path, columns, ("time", "rep"), fault_service="str", fault="str", phase="str")
    for name, value in (("fault_service", fault_service), ("fault", fault), ("rep", rep), ("phase", phase)):
        table.one_of(path, name, value, frame[name])
        frame = frame[frame[name] == value]
    cpu = frame.melt("time", [f"{s}_cpu" for s in services], "container", "cpu")
    memory = frame.melt("time", [f"{s}_mem" for s in services], value_name="memory")["memory"]
    values = {
        "cpu_cores": cpu["cpu"].to_numpy(np.float64) / 100,
        "memory_bytes": memory.to_numpy(np.float64),
    }
    containers, time_s = cpu["container"].str.removesuffix("_cpu"), cpu["time"].to_numpy(np.float64)
    grid = onto_grid(path, containers, time_s, values, interval_s=_INTERVAL_S, max_hold_s=_MAX_HOLD_S)
    return grid.trace(
        "sock-shop",
        {"source": "RCD Sock Shop", "run": f"{fault_service} {fault} {rep} {phase}"},
        f"Sock Shop, run {fault_service}/{fault}/{rep}, {phase} phase.",
        "CPU was smoothed at the source (Prometheus rate over tens of seconds).",
    )
