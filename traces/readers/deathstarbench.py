"""Read the DeathStarBench social network data set: pods every 10 s under normal load.

Source: github.com/yzz9048/SocialNetwork-MonitorData. It has about 28 minutes of 34 pods. cpu_usage is a rate
in cores, and memory is the working set in bytes. Caveats: CPU ends after some 21 minutes while memory
continues, so the trace ends with the last CPU sample. Some pods lack a single sample at either end; it is
filled. The three node series are not containers and are not read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces.readers import table
from traces.readers.regular import onto_grid
from traces.schema import UsageTrace
from twinbed.text import counted

FILES = ("socialnetwork_pod_metrics_10s.csv.gz",)
COLUMNS = ("pod", "timestamp", "cpu_usage", "memory_working_set", "service")
_INTERVAL_S = 10.0


def read(path: Path, *, max_hold_s: float = 30.0) -> UsageTrace:
    """Return all pods. max_hold_s: longest hole that is filled with the sample before it, s."""
    frame = table.read_known(path, COLUMNS, ("timestamp",), pod="str", service="str")
    # A node's series has the node's name for both. A pod's name ends with the hash of its replica set.
    is_node = frame["pod"] == frame["service"]
    pods, nodes = frame[~is_node], frame.loc[is_node, "pod"].nunique()
    values = {
        "cpu_cores": pods["cpu_usage"].to_numpy(np.float64),
        "memory_bytes": pods["memory_working_set"].to_numpy(np.float64),
    }
    time_s = pods["timestamp"].to_numpy(np.float64)
    grid = onto_grid(path, pods["pod"], time_s, values, interval_s=_INTERVAL_S, max_hold_s=max_hold_s)
    return grid.trace(
        "social-network",
        {"source": "DeathStarBench social network, monitoring data"},
        "DeathStarBench social network pods; the trace ends with the last CPU sample.",
        f"The series of {counted(nodes, 'node')} are not of containers and were not read.",
    )
