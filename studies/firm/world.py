"""Random applications under random load, in which Firm is trained and its rules are compared.

For: `World`, one drawn application with its load and its SLO, and `play`, one run of Firm in it. Not for:
learning (train.py). The applications that results pages judge never occur here: services, calls, CPU times,
rates and arrivals are all drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from control.allocator import make
from control.allocator.firm import Firm, FirmSettings
from control.allocator.firm_agent import Rule, Window
from control.allocator.firm_culprits import Intensity, Separator, intensity
from control.allocator.firm_weights import SEPARATOR
from control.allocator.model import Decision, Floats, ServiceStats, slot
from control.paths import critical_paths
from lab.ask.calibration import Calibration
from lab.ask.scenario import build
from lab.containers.input.sections import container_scenario
from lab.containers.input.services.application import build_app
from lab.containers.input.services.prepare import ServicesSource
from twin.containers.model import Machine
from twin.containers.requests.model import RequestWorkload
from twin.containers.run import simulate

WINDOWS = 60
"""Windows of an episode. The source has 300 steps; a fifth of them makes room for more applications."""
WINDOW_S, ROOM_S = FirmSettings().window_s, FirmSettings().room_s


@dataclass(frozen=True, slots=True)
class World:
    """One application with its load. slo_s: p99 latency to keep, s."""

    workload: RequestWorkload
    machine: Machine
    slo_s: float
    seed: int


@dataclass(slots=True)
class Played:
    """The record of a run: a `Window` for each step, and the figures of owners with their throttled share.

    samples: rows of (RI, CI, share of periods throttled).
    """

    windows: list[Window] = field(default_factory=list)
    samples: list[tuple[float, float, float]] = field(default_factory=list)

    def earned(self) -> tuple[float, float, float]:
        """Return the means of the reward, of whether the SLO was kept, and of use over limit, over windows
        and containers."""
        parts = [(reward(window), ~window.violated, window.used) for window in self.windows]
        gained, kept, used = (float(np.concatenate(column).mean()) for column in zip(*parts, strict=True))
        return gained, kept, used


class Watched(Firm):
    """Firm that records its windows. sample: whether it also records the figures of every owner."""

    def __init__(self, settings: FirmSettings, rule: Rule, line: Separator, sample: bool) -> None:
        super().__init__(settings, rule, line)
        self.played, self._sample = Played(), sample

    def on_service(self, stats: ServiceStats) -> Decision:
        """Record the window, and decide as Firm does."""
        if stats.spans is not None and self._sample:
            figures: Intensity = intensity(stats.spans, critical_paths(stats.spans))
            slots = slot(figures.owner)
            throttled = self._throttled_s.values[slots] / np.maximum(self._seconds.values[slots], 1e-9)
            rows = zip(
                figures.importance.tolist(), figures.congestion.tolist(), throttled.tolist(), strict=True
            )
            self.played.samples += rows
        return super().on_service(stats)

    def _window(self, *arguments: Any) -> Window:
        window = super()._window(*arguments)
        if window.slots.size:
            self.played.windows.append(window)
        return window


def reward(window: Window) -> Floats:
    """Return the source's reward of each container, float64[n]: 5 · SLO kept + use/limit."""
    return 5.0 * window.kept + window.used


def drawn(seed: int, calibration: Calibration) -> World:
    """Return the world of this seed. Its SLO is a multiple of the p99 that it has without limits."""
    rng = np.random.default_rng((seed, 7))
    asked = {"app": "drawn", "arrivals": _arrivals(rng), "duration_s": WINDOWS * WINDOW_S, "phases": 1}
    raw = {"name": "episode", "services": asked, "host_cores": 20.0, "policies": ["unlimited"]}
    scenario = container_scenario(build(raw, "episode"))
    assert scenario.services is not None
    source = ServicesSource(build_app(_app(rng)), scenario.services, "", ())
    machine = scenario.machine_of(calibration)
    load, free = np.random.SeedSequence(seed).spawn(2)
    workload = source.prepare(scenario, machine, load).workload
    assert isinstance(workload, RequestWorkload)
    log = simulate(workload, make("unlimited", {}), machine, seed=free, record=False).requests
    assert log is not None
    p99_s = float(np.nanquantile(log.latency_s, 0.99))
    return World(workload, machine, p99_s * float(np.exp(rng.uniform(np.log(1.5), np.log(8.0)))), seed)


def play(
    world: World,
    rule: Rule,
    line: Separator = SEPARATOR,
    *,
    factor: float = 1.0,
    sample: bool = False,
    room_s: float = ROOM_S,
) -> Played:
    """Run Firm in a world. line: its classifier. factor: first limits, in profiled peaks. sample: as for
    `Watched`. room_s: time for which Firm leaves room, s."""
    settings = FirmSettings(slo_p99_s=world.slo_s, initial_factor=factor, room_s=room_s)
    firm = Watched(settings, rule, line, sample)
    simulate(world.workload, firm, world.machine, seed=np.random.SeedSequence((world.seed, 3)), record=False)
    return firm.played


def _arrivals(rng: np.random.Generator) -> dict[str, Any]:
    rate = float(np.exp(rng.uniform(np.log(20.0), np.log(200.0))))
    kind = ("fixed", "exponential", "burst", "alibaba_like")[rng.integers(4)]
    if kind == "burst":
        every_s, part = float(rng.uniform(10.0, 60.0)), float(rng.uniform(0.2, 0.6))
        burst = {"base_rps": rate / 4.0, "burst_rps": rate * float(rng.uniform(0.5, 2.0))}
        return {"kind": kind, "every_s": every_s, "length_s": every_s * part} | burst
    if kind == "alibaba_like":
        bounds = {"low_rps": rate / float(rng.uniform(2.0, 8.0)), "high_rps": rate * 1.5}
        return {"kind": kind, "correlation_s": float(rng.uniform(10.0, 60.0))} | bounds
    return {"kind": kind, "rate_rps": rate}


def _app(rng: np.random.Generator) -> dict[str, Any]:
    """Return an application of 5 to 10 services. Each service but the first is called by one or two earlier
    services."""
    count = int(rng.integers(5, 11))
    services: dict[str, Any] = {}
    callers = {callee: rng.permutation(callee)[: rng.integers(1, 3)].tolist() for callee in range(1, count)}
    kinds = int(rng.integers(1, 5))
    for number in range(count):
        callees = [callee for callee, of in callers.items() if number in of]
        handlers: dict[str, Any] = {}
        for kind in range(kinds if number == 0 else 1):
            some = [callee for callee in callees if kind == 0 or rng.random() < 0.6]
            calls: list[Any] = [
                {"call": f"s{callee}.h0", "probability": float(rng.choice([1.0, 1.0, 0.5]))}
                for callee in some
            ]
            if len(calls) > 1 and rng.random() < 0.5:
                calls = [calls[:2], *calls[2:]]
            cpu_ms = float(np.exp(rng.uniform(np.log(0.2), np.log(10.0))))
            handlers[f"h{kind}"] = {"cpu_ms": cpu_ms, "cv": float(rng.uniform(0.2, 1.0)), "calls": calls}
        memory = {"base_mib": float(rng.uniform(16, 256)), "request_kib": float(rng.uniform(64, 512))}
        threads = float(rng.choice([1, 4, 20]))
        services[f"s{number}"] = {"threads": threads, "memory": memory, "handlers": handlers}
    requests = {
        f"r{kind}": {"handler": f"s0.h{kind}", "weight": float(rng.uniform(0.5, 4))} for kind in range(kinds)
    }
    return {"name": "episode", "network_s": 0.0002, "services": services, "requests": requests}
