"""Stored runs made by hand: what reads runs can be tried without simulating anything."""

import hashlib
import math

import numpy as np
import pyarrow as pa

from lab.ask import policy
from lab.ask.scenario import build
from lab.containers.calibrate.values import load_calibration
from lab.containers.metrics import METRICS
from lab.containers.run import tables
from lab.runs.manifest import SCHEMA
from lab.runs.metric import summary
from lab.runs.store import Run, RunStore
from twin.containers.model import Events, Series

NAMES = ("web", "db")
PERIODS = 40


def figures(**given: float) -> dict[str, float]:
    """A value for every metric: the given ones, else 1."""
    return {metric.key: float(given.get(metric.key, 1.0)) for metric in METRICS}


def publish(
    store: RunStore,
    text: str = "escra",
    *,
    seed: int = 0,
    name: str = "sample",
    metrics: dict[str, float] | None = None,
    kills: tuple[float, float] = (0.0, 0.0),
    spec: dict[str, object] | None = None,
    sha256: str = "ab" * 32,
    notes: tuple[str, ...] = ("A note on the data.",),
    statuses: tuple[str, ...] = (),
    turned_away: tuple[float, float] = (0.0, 0.0),
    censored: tuple[str, ...] = (),
) -> Run:
    """A run of `text` on two containers over 4 s, with these figures; of clients, if `statuses` says what
    became of their requests."""
    chosen = policy.parse(text)
    values = figures(**{"oom_kills": sum(kills), **(metrics or {})})
    scenario = build({"name": name, "trace": {"source": "x"}}, "sample")
    calibration = load_calibration()
    conditions = scenario.model_dump(
        mode="json", exclude={"title", "question", "policies", "seeds", "machine", "calibration", "trace"}
    )
    conditions |= {"policy": {"name": chosen.name, "parameters": chosen.resolved()}, "seed": seed}
    conditions |= spec or {}
    digest = hashlib.sha256(repr((text, seed, name, spec, sha256)).encode()).hexdigest()[:10]
    manifest = {
        "schema": SCHEMA,
        "id": f"{name}-{chosen.name}-{digest}",
        "identity_sha256": digest,
        "name": name,
        "title": "",
        "question": "",
        "policy": chosen.text,
        "seed": seed,
        "backend": "twin",
        "spec": conditions,
        "inputs": [{"role": "trace", "sha256": sha256, "source": "x.csv"}],
        "calibration": {
            "name": calibration.name,
            "kernel": calibration.kernel,
            "cpu": calibration.cpu,
            "date": calibration.date,
            "sha256": calibration.sha256,
            "values": {
                key: {"value": each.value, "unit": each.unit, "source": each.source}
                for key, each in calibration.values.items()
            },
        },
        "workload": {
            "containers": list(NAMES),
            "periods": PERIODS,
            "period_s": 0.1,
            "start_s": 0.0,
            "host_cores": 4.0,
            "applications": [{"name": "app", "cpu_limit_cores": 3.0, "memory_limit_bytes": 3 << 30}],
        },
        "notes": list(notes),
        "versions": {"twinbed": "0", "python": "3", "numpy": "2", "pyarrow": "1"},
        "metrics": {key: None if math.isnan(value) else value for key, value in values.items()},
        "censored": list(censored),
        "created_at": "2026-01-01T00:00:00.000+00:00",
        "wall_s": 0.1,
    }
    per_container = {metric.key: np.ones(2) for metric in METRICS if metric.per_container}
    per_container["oom_kills"] = np.array(kills)
    per_container["turned_away"] = np.array(turned_away)
    written = {
        "summary": summary(METRICS, values, "USD", censored),
        "containers": tables.containers(NAMES, ("app", "app"), per_container),
        "events": tables.events(Events([1.0], [1], ["kill"], [1 << 20]), NAMES),
        "periods": tables.periods(series(), NAMES),
    }
    if statuses:
        written["requests"] = pa.table({"status": pa.array(statuses).dictionary_encode()})
        manifest["workload"] |= {
            "application": "shop",
            "arrivals": "burst",
            "requests": len(statuses),
            "hosts": 3,
        }
    return store.publish(manifest, written)


def series() -> Series:
    """Two containers: the first uses half of its core, the second is throttled in every fourth period."""
    shape = (PERIODS, len(NAMES))
    throttled = np.zeros(shape, np.bool_)
    throttled[::4, 1] = True
    return Series(
        demand_cores=np.full(shape, 0.5, np.float32),
        usage_cores=np.full(shape, 0.5, np.float32),
        quota_cores=np.full(shape, 1.0, np.float32),
        backlog_s=np.zeros(shape, np.float32),
        throttled=throttled,
        throttled_s=np.zeros(shape, np.float32),
        memory_bytes=np.full(shape, 1 << 29, np.int64),
        limit_bytes=np.full(shape, 1 << 30, np.int64),
        cpu_reason=np.zeros(shape, np.uint8),
        up=np.ones(shape, np.bool_),
    )
