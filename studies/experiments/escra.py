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
from studies.experiments.model import Case, Experiment, Figure, changes, figures

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
    name="E1",
    title="One container, load saturating 1-4 CPUs in turn",
    scenario="E1.yaml",
    method=(
        "The limit follows a step up when it is at least 99 % of the demand. It follows a step down when it "
        "is at most γ = 0.2 core above the demand. The time counts from the step to the end of that period; "
        "the figure is the longest of all steps. The source shows a curve. Its text promises reactions "
        "within hundreds of milliseconds, which is read as at most a second."
    ),
    figures=figures(
        ("follows_s", "Longest time to follow a step", "s", 2, lambda cases: max(_up(cases), _down(cases))),
        ("up_s", "Longest time to follow a step up", "s", 2, _up),
        ("down_s", "Longest time to follow a step down", "s", 2, _down),
        ("slack", "Median CPU slack", "cores", 3, mean("cpu_slack_p50_cores", ESCRA)),
    ),
    discussion=(
        "On the way up, Escra needs a throttled period to notice the step. Then it adds a share of the "
        "unallocated pool in each period, and the share grows as its window fills with throttles. On the way "
        "down, the window must forget the old load first. So the time depends on Υ, the window and the room "
        "that Ω leaves, and not on the machine. Each of the three moves it by a period or two.",
        "Two conditions break it. If Ω is no larger than the peak, Escra approaches the last step by ever "
        "smaller raises and never reaches it. If telemetry is half a period late, quotas are written in the "
        "middle of a period, and each write refills the container's runtime. The container then uses more "
        "than its limit without being throttled, and the limit stays below the use.",
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
        yield Figure(
            f"from_{first}s_to_{then}s", f"fixed: throughput at {then} s against {first} s", "%", 1, moved
        )
    for arrivals in ("exponential", "burst", "alibaba_like"):
        for every in INTERVALS_S:
            title = f"{arrivals}: throughput at {every} s"
            rate = mean("throughput_rps", _autopilot(every, arrivals))
            yield Figure(f"{arrivals}_{every}s", title, "req/s", 1, rate, detail=True)


E4 = Experiment(
    name="E4",
    title="HipsterShop's throughput under Autopilot by update interval",
    scenario="E4.yaml",
    method=(
        "Throughput counts answered requests per second. The source does not name the workload of this "
        "figure. Fixed (400 req/s) was chosen before any result was seen, although a load of 400 cannot give "
        "the source's 422 req/s. The other workloads have no figure in the source."
    ),
    figures=tuple(_throughputs()),
    discussion=(
        "The order is not reproduced. On a constant load Autopilot serves slightly more requests if it "
        "updates less often. It begins with limits that it recommends after a profile of the same load, so "
        "limits that are not changed do no harm. At 1 s it lowers memory below what is needed later, and "
        "containers are killed. In the source throughput falls to a quarter between 1 and 60 s. That needs "
        "limits that begin far below the load; the source does not say where they begin.",
        "Three absolute figures are within a factor of two. That is no evidence: every policy that answers "
        "most of 400 req/s is.",
    ),
    sensitivity=(*MICROSERVICES, *AUTOPILOT),
    sensitivity_part=("vary.services.arrivals=[fixed]",),
)


def _interval(interval_s: float) -> Pick:
    return Pick("escra", {"report_interval_s": interval_s})


E6 = Experiment(
    name="E6",
    title="Report intervals of 50 to 200 ms",
    scenario="E6.yaml",
    method=(
        "Percent by which the 99th percentile of latency differs from that at 100 ms: the mean over two "
        "applications and two workloads, since the source names none. The CFS period stays 100 ms, so every "
        "other report at 50 ms comes in the middle of a period. Windows are counted in reports."
    ),
    figures=tuple(
        Figure(
            f"period_{round(1000 * interval_s)}ms",
            f"Latency p99 at {1000 * interval_s:g} ms against 100 ms",
            "%",
            1,
            change("latency_p99_s", _interval(interval_s), _interval(0.1)),
        )
        for interval_s in (0.05, 0.15, 0.2)
    ),
    discussion=(
        "Reports at longer intervals than 100 ms give longer latencies, as in the source. Reports every 50 "
        "ms make no difference on which the seeds agree. A report in the middle of a period raises a quota "
        "at once, and "
        "writing a quota refills the container's runtime, in the twin as in the kernel, so it can use two "
        "quotas in a period. The twin charges nothing for reporting and deciding twice as often.",
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


def _controller_share(cases: Sequence[Case]) -> float:
    (case,) = Pick("escra", {"services.app": "train_ticket"}).of(cases)
    return 100 * len(case.run.manifest["workload"]["containers"]) / _containers_per_core(cases)


def _limit_change_us(cases: Sequence[Case]) -> float:
    return float(cases[0].run.manifest["spec"]["machine"]["quota_write_delay_s"] * 1e6)


E7 = Experiment(
    name="E7",
    title="Overhead of Escra",
    scenario="E7.yaml",
    timed=True,
    method=(
        f"Network: records ({RECORD_BYTES} B each on the wire with UDP, IPv4 and Ethernet) and new limits "
        f"({LIMIT_BYTES} B) in the busiest second of MediaMicroservice (32 containers). Containers per core: "
        "the period divided by the allocator's own time per record on TrainTicket (68 containers), on this "
        "machine. Time of a limit change: the quota write that was measured for the calibration. It is an "
        "input and not a result."
    ),
    figures=figures(
        ("network_32_containers", "Peak network, 32 containers", "Mbit/s", 3, _network),
        ("containers_per_core", "Containers per core", "1", 0, _containers_per_core),
        ("controller_share", "Controller's CPU for 68 containers, of a core", "%", 2, _controller_share),
        (
            "containers_per_node",
            f"Containers per node of {NODE_CORES} cores",
            "1",
            0,
            scaled(NODE_CORES, _containers_per_core),
        ),
        ("limit_change", "Limit change in force after", "µs", 0, _limit_change_us),
    ),
    discussion=(
        "Network: 12.06 Mbit/s are 4.7 kB per container and period, fifty times what a record takes on the "
        "wire. The source's figure must contain more than telemetry: it calls its agents over HTTP/2 for "
        "every limit, and asks cAdvisor for the memory of every container.",
        "Containers per core: ours counts the decision alone, made in NumPy over all containers that report "
        "together, so it grows with their number (phases). The source's controller also receives datagrams "
        "and calls agents; `python -m studies wire` counts the needs of a real one, with TLS. The figure is "
        "a time and changes from machine to machine and run to run.",
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
    name="telemetry-delay",
    title="Escra with its Controller farther and farther away",
    scenario="telemetry_delay.yaml",
    method=(
        "The network's one-way delay is added to telemetry, to limit changes and to the grant of memory. The "
        "runs are HipsterShop and Teastore under Burst, which asks most of Escra. Changes are against no "
        "delay, paired, and are means over the two applications."
    ),
    discussion=(
        "A delay of up to 5 ms does no harm. Latency even falls a little, because a quota that is written "
        "later in the period refills the runtime of a container that has used more of it. From 20 ms on the "
        "tail doubles, and at half a period the median suffers, too. Decisions are then about a period that "
        "is over, quotas are written when they refill most, and Escra mistakes the effect of a refill for a "
        "sufficient limit. A Controller belongs in the same region as its hosts.",
    ),
    figures=tuple(
        figure
        for delay_s in (0.0, 0.0001, 0.001, 0.005, 0.02, 0.05, 0.1, 0.2)
        for figure in _telemetry("machine.network_delay_s", delay_s, f"{1000 * delay_s:g} ms")
    ),
    curve="One-way delay between hosts and Controller",
)

LOSS = Experiment(
    name="telemetry-loss",
    title="Escra with a share of its telemetry lost",
    scenario="telemetry_loss.yaml",
    method=(
        "Each record is lost independently with this probability. The runs are HipsterShop and Teastore "
        "under Burst. Changes are against no loss, paired, and are means over the two applications."
    ),
    discussion=(
        "Loss does little harm: up to 2 % there is no visible effect, and 20 % nearly double the tail. A "
        "lost record delays a decision by one period, because the next record says the same again. Slack "
        "does not change.",
    ),
    figures=tuple(
        figure
        for loss in (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
        for figure in _telemetry("machine.telemetry_loss", loss, f"{100 * loss:g} %")
    ),
    curve="Telemetry lost",
)
