"""Small cluster histories and advice rows for the tests of advice."""

import numpy as np

from lab.containers.advise.model import Advice, Interval, Made, Outcome, Row, Setting
from traces.prometheus.history import ClusterHistory
from traces.prometheus.in_force import Entries
from traces.prometheus.workloads import Owner
from traces.schema import UsageTrace

MIB = 1 << 20


def trace(cores, memory=None, *, present=None, interval_s=60.0, names=None):
    """Containers (rows of `cores`) over intervals."""
    values = np.array(cores, np.float64).T
    held = np.zeros(values.shape) if memory is None else np.array(memory, np.float64).T
    there = np.ones(values.shape, np.bool_) if present is None else np.array(present, np.bool_).T
    count = values.shape[1]
    return UsageTrace(
        containers=tuple(names or (f"shop/web-{index}/app" for index in range(count))),
        apps=("shop",) * count,
        start_s=0.0,
        interval_s=interval_s,
        cpu_cores=np.ascontiguousarray(np.where(there, values, 0.0)),
        memory_bytes=np.ascontiguousarray(np.where(there, held, 0.0)),
        present=np.ascontiguousarray(there),
    )


def history(own, owners=None, **facts):
    """facts: one value per container, NaN: unknown."""
    found = {}
    for name, values in facts.items():
        known = np.flatnonzero(~np.isnan(values)).astype(np.int32)
        found[name] = Entries(np.zeros(known.size, np.int32), known, np.array(values, np.float64)[known])
    count = len(own.containers)
    of_pods = owners or [Owner("shop", f"web-{index}", "app", "Deployment", "web") for index in range(count)]
    return ClusterHistory(own, tuple(of_pods), found)


def alone(*names):
    """Owners of containers that are workloads by themselves."""
    return [Owner("", "", name, "", name) for name in names]


def outcome(**figures):
    named = {key: Interval(mean=value, low=value, high=value) for key, value in figures.items()}
    return Outcome(**(dict.fromkeys(Outcome.model_fields) | named))


def row(name="shop/web/app", **changes):
    parts = dict(zip(("namespace", "workload", "container"), name.split("/"), strict=False))
    return Row(
        **{
            "name": name,
            "kind": "Deployment",
            **parts,
            "members": [name],
            "replicas": 2,
            "current": Setting(),
            "advised": Setting(
                cpu_request_cores=0.25,
                cpu_limit_cores="none",
                memory_request_bytes=256 * MIB,
                memory_limit_bytes=384 * MIB,
            ),
            "policy": "requests-only",
            "verdict": "apply",
            "reason": "It is cheaper.",
            "before": None,
            "after": outcome(money_per_day=1.0),
            "peak_cores": 0.4,
            "peak_bytes": 250.0 * MIB,
            **changes,
        }
    )


def advice(*rows):
    made = Made(
        at="2026-01-01T00:00:00+00:00", by="0", source="test", sha256="0", start_s=0.0, duration_s=60.0,
        interval_s=60.0, seeds=[0], candidates=["requests-only"], risk=0.05, currency="USD",
    )  # fmt: skip
    return Advice(version=1, made=made, rows=list(rows or [row()]))
