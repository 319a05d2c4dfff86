"""E1, E4, E6, E7 and the questions about telemetry: Escra's speed, its cost, and the effect of delays.

For: the definitions. Not for: comparing policies on applications (microservices.py). Source: the Escra
chapter: E1 figure 2.2, E4 section 2.6.1, E6 section 2.6.9.1, E7 section 2.6.9, telemetry section 2.6.9.2.

The sizes on the wire in E7 are those of the smallest protocol that would do, not measured ones. A record is
an id (8 B), quota (4 B), unused runtime (4 B), period number (4 B) and flags (4 B), in a UDP datagram of its
own, as the source's kernel threads send it. A limit is an id, a quota and a reason (8 B each) in a TCP
segment.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from studies.experiments.assumptions import AUTOPILOT, MICROSERVICES
from studies.experiments.measures import Pick, change, mean, percent, scaled, total
from studies.experiments.model import Case, Experiment, Figure, Measure, changes, figures, written

GAMMA_CORES = 0.2
"""A limit has come down far enough if it leaves at most this unused, cores: Escra lowers it no further."""

NEAR = 0.99
"""A limit has gone up far enough at this share of the demand: Escra makes no change below 1 %."""

_ETHERNET_BYTES = 8 + 14 + 4 + 12
"""Preamble, header, checksum and the gap after a frame."""

RECORD_BYTES = 24 + 8 + 20 + _ETHERNET_BYTES
"""A record of one container and period with UDP and IPv4 headers: 90 bytes on the wire."""

LIMIT_BYTES = 24 + 20 + 20 + _ETHERNET_BYTES
"""A new limit with TCP and IPv4 headers: 102 bytes on the wire."""

ESCRA = Pick("escra")


def follows_s(case: Case, direction: int) -> float:
    """Return the longest time from a step of the demand (+1 up, −1 down) to a limit that fits it, seconds.

    A limit fits if at the end of a period it is at least 99 % of the demand (up) or at most γ above it
    (down). The time is infinite if it never fits.
    """
    frame = case.run.frame("periods", ["demand_cores", "quota_cores"])
    demand = frame["demand_cores"].to_numpy(np.float64)
    quota = frame["quota_cores"].to_numpy(np.float64)
    period_s = float(case.run.manifest["workload"]["period_s"])
    longest = 0.0
    for start in np.flatnonzero(np.sign(np.diff(demand)) == direction) + 1:
        later, wanted = quota[start:], demand[start]
        fits = later >= NEAR * wanted if direction > 0 else later <= wanted + GAMMA_CORES
        longest = max(longest, (int(np.argmax(fits)) + 1) * period_s if fits.any() else np.inf)
    return longest


def _up(cases: Sequence[Case]) -> float:
    return max(follows_s(case, +1) for case in ESCRA.of(cases))


def _down(cases: Sequence[Case]) -> float:
    return max(follows_s(case, -1) for case in ESCRA.of(cases))


E1 = Experiment(
    **written("E1"),
    scenario="E1.yaml",
    figures=figures(
        ("follows_s", "Longest time to follow a step", "s", 2, lambda cases: max(_up(cases), _down(cases))),
        ("up_s", "Longest time to follow a step up", "s", 2, _up),
        ("down_s", "Longest time to follow a step down", "s", 2, _down),
        ("slack", "Median CPU slack", "cores", 3, mean("cpu_slack_p50_cores", ESCRA)),
    ),
    sensitivity=changes(
        {
            "Υ=10%": "escra.upsilon=10",
            "Υ=40%": "escra.upsilon=40",
            "window=10": "escra.window=10",
            "no guard": "escra.stale_mean_guard=false",
            "Ω=1×peak": "budget_factor=1.0",
            "Ω=3×peak": "budget_factor=3.0",
            "period=50ms": "period_s=0.05",
            "telemetry +50ms": "machine.telemetry_delay_s=0.05",
        }
    ),
)

INTERVALS_S = (1, 10, 30, 60, 300)


def _autopilot(interval_s: int, arrivals: str = "fixed") -> Pick:
    return Pick(f"autopilot:update_interval_s={interval_s}", {"services.arrivals": arrivals})


def _throughputs() -> Iterator[Figure]:
    for every in INTERVALS_S:
        rate = mean("throughput_rps", _autopilot(every))
        yield Figure(f"throughput_{every}s", f"fixed: throughput at {every} s", "req/s", 1, rate)
    for first, then in itertools.pairwise(INTERVALS_S[:4]):
        moved = change("throughput_rps", _autopilot(then), _autopilot(first))
        title = f"fixed: throughput at {then} s against {first} s"
        yield Figure(f"from_{first}s_to_{then}s", title, "%", 1, moved)
    for arrivals in ("exponential", "burst", "alibaba_like"):
        for every in INTERVALS_S:
            title = f"{arrivals}: throughput at {every} s"
            rate = mean("throughput_rps", _autopilot(every, arrivals))
            yield Figure(f"{arrivals}_{every}s", title, "req/s", 1, rate, detail=True)


E4 = Experiment(
    **written("E4"),
    scenario="E4.yaml",
    figures=tuple(_throughputs()),
    sensitivity=(*MICROSERVICES, *AUTOPILOT),
    sensitivity_part=("vary.services.arrivals=[fixed]",),
)


def _against_100_ms(ms: int) -> Measure:
    ours, theirs = (Pick("escra", {"report_interval_s": one / 1000}) for one in (ms, 100))
    return change("latency_p99_s", ours, theirs)


E6 = Experiment(
    **written("E6"),
    scenario="E6.yaml",
    figures=tuple(
        Figure(f"period_{ms}ms", f"Latency p99 at {ms} ms against 100 ms", "%", 1, _against_100_ms(ms))
        for ms in (50, 150, 200)
    ),
    sensitivity=changes(
        {
            "CPU demands ×0.5": "services.cpu_scale=0.5",
            "CPU demands ×2": "services.cpu_scale=2.0",
            "phases=1": "services.phases=1",
            "γ=0.05": "escra.gamma=0.05",
            "window=10": "escra.window=10",
        }
    ),
    sensitivity_part=("vary.services.app=[hipster_shop]", "vary.services.arrivals=[burst]"),
)


def peak_mbit_s(case: Case) -> float:
    """Return the records and new limits in the busiest second of a run, Mbit/s."""
    frame = case.run.frame("periods", ["period", "cpu_reason", "up"])
    period_s = float(case.run.manifest["workload"]["period_s"])
    second = (frame["period"].to_numpy(np.int64) * period_s + 1e-9).astype(np.int64)
    records = np.bincount(second, frame["up"].to_numpy(np.float64))
    limits = np.bincount(second, frame["cpu_reason"].to_numpy() > 0)
    return float((records * RECORD_BYTES + limits * LIMIT_BYTES).max() * 8 / 1e6)


def _network(cases: Sequence[Case]) -> float:
    media = Pick("escra", {"services.app": "media_microservice"})
    return max(peak_mbit_s(case) for case in media.of(cases))


def _containers_per_core(cases: Sequence[Case]) -> float:
    (case,) = Pick("escra", {"services.app": "train_ticket"}).of(cases)
    manifest = case.run.manifest
    per_record_s = manifest["decide_s"] / manifest["asked"] if manifest["asked"] else math.nan
    return float(manifest["workload"]["period_s"] / per_record_s)


NODE_CORES = 20
"""Cores of a node of the source's cluster."""
_PER_NODE = f"Containers per node of {NODE_CORES} cores"


def _controller_share(cases: Sequence[Case]) -> float:
    (case,) = Pick("escra", {"services.app": "train_ticket"}).of(cases)
    return 100 * len(case.run.manifest["workload"]["containers"]) / _containers_per_core(cases)


def _limit_change_us(cases: Sequence[Case]) -> float:
    return float(cases[0].run.manifest["spec"]["machine"]["quota_write_delay_s"] * 1e6)


E7 = Experiment(
    **written("E7", record_bytes=RECORD_BYTES, limit_bytes=LIMIT_BYTES),
    scenario="E7.yaml",
    timed=True,
    figures=figures(
        ("network_32_containers", "Peak network, 32 containers", "Mbit/s", 3, _network),
        ("containers_per_core", "Containers per core", "1", 0, _containers_per_core),
        ("controller_share", "Controller's CPU for 68 containers, of a core", "%", 2, _controller_share),
        ("containers_per_node", _PER_NODE, "1", 0, scaled(NODE_CORES, _containers_per_core)),
        ("limit_change", "Limit change in force after", "µs", 0, _limit_change_us),
    ),
    sensitivity=changes(
        {"period=50ms": "period_s=0.05", "phases=1": "services.phases=1", "phases=10": "services.phases=10"}
    ),
)


def _telemetry(key: str, value: float, aside: str) -> tuple[Figure, ...]:
    pick, undisturbed = Pick("escra", {key: value}), Pick("escra", {key: 0.0})
    return figures(
        ("latency_p50", "Latency p50, change", "%", 1, change("latency_p50_s", pick, undisturbed)),
        ("latency_p99", "Latency p99, change", "%", 1, change("latency_p99_s", pick, undisturbed)),
        ("latency_p999", "Latency p99.9, change", "%", 1, change("latency_p999_s", pick, undisturbed)),
        ("failed", "Requests not answered", "%", 2, percent("failed_share", pick)),
        ("throttled", "Throttled periods", "%", 2, percent("throttled_share", pick)),
        ("cpu_slack_p50", "CPU slack p50", "cores", 3, mean("cpu_slack_p50_cores", pick)),
        ("cpu_slack_p99", "CPU slack p99", "cores", 3, mean("cpu_slack_p99_cores", pick)),
        ("kills", "OOM kills, all runs", "1", 1, total("oom_kills", pick)),
        aside=aside,
    )


DELAY = Experiment(
    **written("telemetry-delay"),
    scenario="telemetry_delay.yaml",
    figures=tuple(
        figure
        for delay_s in (0.0, 0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2)
        for figure in _telemetry("machine.network_delay_s", delay_s, f"{1000 * delay_s:g} ms")
    ),
    curve="One-way delay between hosts and Controller",
)

LOSS = Experiment(
    **written("telemetry-loss"),
    scenario="telemetry_loss.yaml",
    figures=tuple(
        figure
        for loss in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
        for figure in _telemetry("machine.telemetry_loss", loss, f"{100 * loss:g} %")
    ),
    curve="Telemetry lost",
)
