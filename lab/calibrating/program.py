"""What the service program costs: CPU per visit and call, dilation, memory, the network, the load generator.

For: an application made for this, which no validation uses: two services that call nobody and one that calls
them. Not for: scenarios. Two runs at different rates are told apart, so that what idles does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from control.allocator import make
from control.allocator.model import Application
from lab.calibrating.figures import costs, distribution, per_request
from lab.calibration import Value
from testbed.containers import loop, ownership
from testbed.containers.load.generator import LoadGenerator
from testbed.containers.load.plan import LoadPlan, LoadResult, Status
from testbed.containers.observed import Observed
from testbed.containers.services.deploy import deploy
from testbed.containers.services.model import Call, Handler, Service, ServiceApp
from twinbed import BackendError

SHORT_S, LONG_S, FRONT_S = 0.0005, 0.004, 0.001
SHORT_CALLS, LONG_CALLS = 4, 1
RATES_RPS = (5.0, 25.0)
_SOURCE = "measured: an application of three services under no limits, by the difference of two rates"
_IDLE_ROWS = 3
_LEAST_ANSWERED = 0.95


@dataclass(frozen=True, slots=True)
class Measured:
    """program: fields of lab.calibration.Program but loop_cores; restart: start-up of a container."""

    program: dict[str, Value]
    restart: Value


def application() -> ServiceApp:
    """`front` calls `short` four times and `long` once, one after another; all demands are fixed."""
    calls = ("short.work",) * SHORT_CALLS + ("long.work",) * LONG_CALLS
    stages = tuple((Call(target),) for target in calls)
    return ServiceApp(
        name="calibration",
        services={
            "front": Service({"page": Handler(FRONT_S, stages=stages)}),
            "short": Service({"work": Handler(SHORT_S)}),
            "long": Service({"work": Handler(LONG_S)}),
        },
        requests={"page": "front.page"},
    )


def measure(duration_s: float, tell: Callable[[float], None]) -> Measured:
    """Two runs of duration_s; tell: called with the fraction done. Raises as loop.control."""
    starts: list[float] = []
    runs = []
    for number, rate_rps in enumerate(RATES_RPS):
        runs.append(_run(rate_rps, duration_s, starts))
        tell((number + 1) / len(RATES_RPS))
    (slow, slow_load), (fast, fast_load) = runs
    counts = (_answered(slow_load), _answered(fast_load))
    visits = {"front": 1, "short": SHORT_CALLS, "long": LONG_CALLS}
    used_s = {
        name: per_request((float(slow.done_s[index]), float(fast.done_s[index])), counts) / visits[name]
        for index, name in enumerate(slow.names)
    }
    found = costs(
        used_s,
        {"front": FRONT_S, "short": SHORT_S, "long": LONG_S},
        {"front": SHORT_CALLS + LONG_CALLS, "short": 0, "long": 0},
    )
    on_cpu_s = sum(used_s[name] * visits[name] for name in used_s)
    network = _network((slow_load, fast_load), on_cpu_s)
    client_s = max(per_request((slow_load.cpu_s, fast_load.cpu_s), counts), 0.0)
    n = sum(counts)
    idle = slow.series.memory_bytes[:_IDLE_ROWS]
    return Measured(
        {
            "visit_s": Value(found.visit_s, "s", _SOURCE, n),
            "call_s": Value(found.call_s, "s", _SOURCE, n),
            "dilation": Value(found.dilation, "ratio", _SOURCE, n),
            "network_s": network,
            "base_bytes": Value(
                float(np.median(idle)), "B", "measured: memory of the idle process", int(idle.size)
            ),
            "client_request_s": Value(client_s, "s", _SOURCE, n),
        },
        distribution(starts, "s", "measured: from a container's start to its first answer"),
    )


def _run(rate_rps: float, duration_s: float, starts: list[float]) -> tuple[Observed, LoadResult]:
    app = application()
    at_s = np.arange(0.5, duration_s - 0.5, 1.0 / rate_rps)
    with ownership.temporary_directory() as folder, deploy(app, folder) as placed:
        began = time.monotonic()
        told: set[str] = set()

        def noting(container: str, ready: Callable[[], bool]) -> Callable[[], bool]:
            def asked() -> bool:
                if not ready():
                    return False
                if container not in told:
                    told.add(container)
                    starts.append(time.monotonic() - began)
                return True

            return asked

        containers = [
            loop.Managed(each.spec, ready=noting(each.spec.name, each.ready)) for each in placed.containers
        ]
        plan = LoadPlan(at_s, np.zeros(len(at_s), np.int64), placed.entries, duration_s)
        with LoadGenerator(plan, folder) as client:
            observed = loop.control(
                containers,
                [Application(app.name, 64.0, 1 << 40)],
                make("unlimited", {}),
                loop.Settings(duration_s=duration_s, logs=folder),
                client=client,
            )
            return observed, client.result()


def _answered(load: LoadResult) -> int:
    """How many; BackendError when so many are missing that visits of theirs would be counted to others."""
    count = int(np.count_nonzero(load.status == Status.OK))
    if count < _LEAST_ANSWERED * len(load.at_s):
        raise BackendError(
            f"calibration: {count} of {len(load.at_s)} requests were answered at a rate that a quiet machine "
            "serves with ease; end what else runs here and calibrate again"
        )
    return count


def _network(loads: tuple[LoadResult, ...], on_cpu_s: float) -> Value:
    """A call's way and back: what is left of a request's latency, shared out over its calls."""
    latency_s = np.concatenate([load.latency_s[load.status == Status.OK] for load in loads])
    each_s = np.maximum(latency_s - on_cpu_s, 0.0) / (SHORT_CALLS + LONG_CALLS)
    return distribution(each_s, "s", "measured: latency beyond all CPU time, per call")
