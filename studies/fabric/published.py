"""Published figures of fleets beside the planner's and the closed forms': R1 to R15, each with its band.

For: a table of docs/results/failures.md, and its test. Not for: the planner (twin.fabric.planner) and its
inputs (lab.fabric.run.planned). Nothing was tuned to a figure. Sources: Meta (arXiv 2410.21680), Llama 3
(2407.21783), ByteRobust (2509.16293), R2CCL (2512.25059), SHIFT (2512.11094), torchft. If neither source nor
form has a band, an input must come back within 1 %, a simulated share must be within 1.5 points, as for
Meta's form, and a share of counts within their 95 % interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import numpy as np
from scipy import stats

from lab.ask import shipped
from lab.ask.scenario import expand, load, with_overrides
from lab.fabric.input import FleetInput, fabric_of
from lab.fabric.run.planned import plan_of
from lab.fabric.run.world import build_world
from twin.fabric import recovery_forms as forms
from twin.fabric.checkpoints import Checkpointing, daly_s, expected_ratio
from twin.fabric.planner import BINS, Action, Failure, Loss, Outcome, Plan, Tier, simulate

DAY_S, HOUR_S = 86_400.0, 3600.0
RSC1, LLAMA3 = 6.50e-3, 3.79e-3
"""Failures of a node per day at Meta's RSC-1 and in Llama 3's fleet."""
CAUSES = {
    "faulty GPU": 148, "GPU HBM3 memory": 72, "software bug": 54, "switch or cable": 35,
    "unplanned maintenance": 32, "GPU SRAM": 19, "GPU system processor": 17, "NIC": 7, "NCCL watchdog": 7,
    "silent data corruption": 6, "GPU thermal": 6, "SSD": 3, "power supply": 3, "server chassis": 2,
    "IO expansion board": 2, "dependency": 2, "CPU": 2, "system memory": 2,
}  # fmt: skip
"""Llama 3's unexpected interruptions (table 5), by count."""
_SEEDS = range(10)
_DEATHS = 2000
"""Number of deaths over which a single cause's times are averaged."""
_RARE_PER_S = 1e-7
"""Rate of a single cause, so low that no failure meets another one, 1/s."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """A published figure and ours.

    name, what: number of the figure (R1 …), and the quantity.
    source: the published figure as text.
    ours: our figure.
    low, high: the band in which ours must be.
    missed: reason if our figure is outside the band, or empty.
    """

    name: str
    what: str
    source: str
    ours: float
    low: float
    high: float
    missed: str = ""

    @property
    def within(self) -> bool:
        """Whether our figure is within the band."""
        slack = _ROUNDING * max(abs(self.low), abs(self.high))
        return self.low - slack <= self.ours <= self.high + slack


def _near(name: str, what: str, source: float, ours: float, band: float, missed: str = "") -> Row:
    """Return a row whose band is relative to the source's figure."""
    low, high = source - band * abs(source), source + band * abs(source)
    return Row(name, what, f"{source:.4g}", float(ours), low, high, missed)


def r1() -> Iterator[Row]:
    """Yield Meta's projected times between failures. Band: 3 %."""
    for gpus, hours in ((16_384, 1.803), (131_072, 0.225)):
        what = f"MTTF at {gpus:,} GPUs (h), Meta's projection"
        yield _near("R1", what, hours, 24 / (gpus / 8 * RSC1), 0.03)


def r2() -> Iterator[Row]:
    """Yield Meta's first-order ETTR (band: 0.5 %) and the simulation's (band: 1.5 points). The simulation is
    compared with Daly's exact form if the loss is above 0.2."""
    sizes = (1024, 8192, 16_384, 32_768, 131_072)
    for save_s, start_s, shares in (
        (20.0, 600.0, (0.9748, 0.9011, 0.8357, 0.7203, 0.1438)),
        (5.0, 60.0, (0.9897, 0.9681, 0.9524, 0.9280, 0.8251)),
    ):
        for gpus, share in zip(sizes, shares, strict=True):
            per_s = gpus / 8 * RSC1 / DAY_S
            interval_s = forms.first_order_interval_s(save_s, 1 / per_s)
            form = forms.expected_ettr(per_s, interval_s, save_s, start_s)
            what = f"ETTR at {gpus:,} GPUs, saves of {save_s:g} s"
            yield _near("R2", f"{what}, first-order form", share, form, 0.005)
            plan = _single(gpus // 8, per_s, Tier("remote", interval_s, save_s, 0.0, Loss.PEERS), start_s)
            simulated = float(np.mean([_run(plan, seed).ettr for seed in range(4)]))
            exact = expected_ratio(Checkpointing(interval_s, save_s, 0.0, start_s), 1 / per_s)
            beside, named = (form, "the form") if form > 0.8 else (exact, "Daly's exact form")
            yield _near("R2", f"{what}, simulated, beside {named}", beside, simulated, 0.015 / beside)


def r3() -> Iterator[Row]:
    """Yield Daly's exact form and his interval. Band: 0.3 %."""
    for given_s, share in ((300.0, 0.8338), (684.0, 0.8386), (1800.0, 0.7812)):
        exact = expected_ratio(Checkpointing(given_s, 20.0, 0.0, 600.0), 1.803 * HOUR_S)
        yield _near("R3", f"useful share, a save every {given_s:g} s", share, exact, 0.003)
    yield _near("R3", "three-term optimum at 16,384 GPUs (s)", 496.0, daly_s(20.0, 1.803 * HOUR_S), 0.003)


def r4() -> Iterator[Row]:
    """Yield Llama 3's interruptions in 54 days (band: 5 %) and its effective time of over 90 %."""
    per_s = 2048 * LLAMA3 / DAY_S
    plan = replace(_single(2048, per_s, Tier("remote", 500.0, 20.0, 60.0, Loss.PEERS)), duration_s=54 * DAY_S)
    planned = replace(plan, updates_per_s=47 / plan.duration_s, update_within_s=0.0)
    counts, every = (
        np.mean([_run(asked, seed).interruptions.sum() for seed in _SEEDS]) for asked in (plan, planned)
    )
    yield _near("R4", "unexpected interruptions of Llama 3 in 54 days", 419.0, counts, 0.05)
    yield _near("R4", "hours per unexpected interruption", 3.09, 54 * 24 / counts, 0.05)
    yield _near("R4", "hours per interruption of any kind (47 planned)", 2.78, 54 * 24 / every, 0.05)
    _, runs = _declared()
    yield Row("R4", "effective time, no scheme (%)", "over 90", 100 * _ettr(runs), 90.0, 100.0)


def r5() -> Iterator[Row]:
    """Yield Llama 3's causes by count (band: three standard deviations each) and its network's shares."""
    counts = _deaths()
    far = {
        cause: abs(counts[cause] - count) / np.sqrt(count / len(_SEEDS)) for cause, count in CAUSES.items()
    }
    worst = max(far, key=lambda cause: far[cause])
    what = f"its causes, farthest of 18 ({worst}) from the source's count, in standard deviations"
    yield Row("R5", what, "at most 3", far[worst], 0.0, 3.0)
    every = sum(counts.values())
    for cause, percent in (("switch or cable", 8.4), ("NIC", 1.7)):
        share = 100 * counts[cause] / every
        low, high = _interval(CAUSES[cause], 419)
        yield Row("R5", f"share of {cause} in deaths (%)", f"{percent:g}", share, low, high)


def r6() -> Iterator[Row]:
    """Yield the time of an iteration with 405 G parameters and 16 Mi tokens at 400 TFLOP/s. Band: 1 %."""
    told_s = 6 * 405e9 * (1 << 24) / (16_384 * 400e12)
    what = "iteration at 400 TFLOP/s of 16,384 GPUs (s), the default of `fleet`"
    yield _near("R6", what, told_s, FleetInput().iteration_s, 0.01)


def r7() -> Iterator[Row]:
    """Yield the ETTR of ByteRobust's dense job on 9,600 GPUs (band: 1.5 points of 97 %). It is computed from
    ByteRobust's actions (R13) in 90 days and its mean times to resolve (R9) and to restart (R10)."""
    days, nodes = 90.0, 9600 // 8
    taken = (
        ("evict and restart", 128, 47.0, Loss.NODE, Action.REPLACE),  # Mean of R9's four kinds of hardware.
        ("hot update", 20, 57.0, Loss.PROCESS, Action.UPDATE),
        ("analyser", 15, 600.0, Loss.NODE, Action.REPLACE),  # It has no time there.
        ("rollback", 12, 4289.0, Loss.PEERS, Action.UPDATE),
    )
    per_day = sum(row[1] for row in taken) / days / nodes
    plan, _ = _declared(f"gpus=9600:days={days}:plan.failures_per_node_day={per_day}")
    failures = tuple(
        Failure(name, count / days / DAY_S, found_s, loss, action, 4 * HOUR_S)
        for name, count, found_s, loss, action in taken
    )
    runs = [_run(replace(plan, failures=failures), seed) for seed in _SEEDS]
    what = "ETTR of the dense job on 9,600 GPUs (%), from R9, R10 and R13"
    yield Row("R7", what, "up to 97", 100 * _ettr(runs), 95.5, 98.5)


def r8() -> Iterator[Row]:
    """Yield the time to find a failure of each kind, with ByteRobust's inspection and without. Band: 1 %."""
    for cause, kind, found_s in (
        ("NIC", "NIC crash", 30.0),
        ("cable", "port flap", 30.0),
        ("switch", "switch down", 60.0),
        ("GPU system processor", "driver hang", 10.0),
        ("GPU thermal", "high temperature", 10.0),
        ("faulty GPU", "GPU lost", 10.0),
        ("CPU", "kernel panic", 2.0),
    ):
        yield _near("R8", f"time to find: {kind} (s)", found_s, _each_s(cause, "detect"), 0.01)
    blind_s = _each_s("faulty GPU", "detect", "plan.inspection=false")
    yield _near("R8", "time to find a lost GPU without inspection (s)", 600.0, blind_s, 0.01)


def r9() -> Iterator[Row]:
    """Yield the mean time until a failure is resolved, without the restart. Band: 1 %."""
    late = "the planner takes R8's 2 s, which detect a panic; the source also counts finding its reason"
    for cause, kind, resolved_s, missed in (
        ("switch", "InfiniBand", 60.0, ""),
        ("GPU HBM3 memory", "GPU memory", 10.0, ""),
        ("faulty GPU", "GPU unavailable", 10.0, ""),
        ("SSD", "storage", 58.0, ""),
        ("software bug", "code or data", 57.0, ""),
        ("silent data corruption", "NaN", 4289.0, ""),
        ("CPU", "kernel", 109.0, late),
    ):
        found_s = _each_s(cause, "detect")
        yield _near("R9", f"mean time to resolve: {kind} (s)", resolved_s, found_s, 0.01, missed)


def r10() -> Iterator[Row]:
    """Yield the times of a requeue and of a hot update by GPUs, and their mean ratio. Band: 1 %."""
    ratios = []
    for gpus, requeue_s, update_s in (
        (2048, 454.0, 46.0),
        (4096, 545.0, 51.0),
        (8192, 635.0, 54.0),
        (16_384, 768.0, 65.0),
    ):
        requeued_s = _each_s("faulty GPU", "replace", f"gpus={gpus}:plan.warm=0:plan.cold=0")
        updated_s = _each_s("software bug", "replace", f"gpus={gpus}")
        ratios.append(requeued_s / updated_s)
        yield _near("R10", f"requeue of {gpus:,} GPUs (s)", requeue_s, requeued_s, 0.01)
        yield _near("R10", f"hot update of {gpus:,} GPUs (s)", update_s, updated_s, 0.01)
    yield _near("R10", "requeue over hot update, mean of four sizes", 11.03, float(np.mean(ratios)), 0.01)


def r11() -> Iterator[Row]:
    """Yield ByteRobust's pools (exact) and its scheduling time over that of an oracle that always has a
    standby (band: 5.19 %). In the simulation 32 machines that fail at once find no pool and are rescheduled,
    5.36 times as slowly."""
    for machines, pool in ((128, 2), (256, 2), (512, 3), (1024, 4)):
        yield _near("R11", f"standbys for {machines} machines", pool, forms.standby_pool(machines), 0.0)
    above = []
    for machines in (256, 512, 1024, 2048):
        pool = forms.standby_pool(machines)
        times = [1.0 if count <= pool else 5.36 for count in range(33)]
        above.append(forms.weighted_s(machines, times.__getitem__))
    what = "weighted scheduling time above an oracle's, largest of four sizes (%)"
    yield Row("R11", what, "at most 5.19", 100 * (max(above) - 1), 0.0, 5.19)


def r12() -> Iterator[Row]:
    """Yield the relative speed of training with a save after every step. Band: 2.5 %. The slowest save
    decides the time of a step."""
    for title, first, others in (
        ("70B, 2,048", (6.77, 0.3984), ((1.84, 0.7005), (0.04, 0.9923))),
        ("70B, 4,096", (7.14, 0.3911), ((1.69, 0.7236), (0.03, 0.9912))),
        ("256B, 8,192", (13.02, 0.4307), ((0.22, 0.9590), (0.01, 0.9971))),
        ("256B, 16,384", (12.98, 0.4280), ((0.18, 0.9692), (0.01, 0.9911))),
    ):
        step_s = first[0] * first[1] / (1 - first[1])
        for save_s, share in others:
            ours = 1 / (1 + save_s / step_s)
            yield _near("R12", f"speed left by saves of {save_s:g} s, {title} GPUs", share, ours, 0.025)


def r13() -> Iterator[Row]:
    """Yield the share of failures that end in place (hot update, rollback), computed from Llama 3's causes.
    Band: the 95 % interval of ByteRobust's counts."""
    plan, _ = _declared()
    ends = {failure.name: failure.action for failure in plan.failures}
    counts = _deaths()
    in_place = sum(count for cause, count in counts.items() if ends.get(cause) is Action.UPDATE)
    ours = 100 * in_place / sum(counts.values())
    missed = (
        "the mixture-of-experts job was changed more often; `updates_per_day` takes such changes, but how "
        "many there were is not published"
    )
    for job, replaced, updated, why in (("dense", 143, 32, ""), ("mixture of experts", 80, 45, missed)):
        share = f"{100 * updated / (replaced + updated):.3g}"
        low, high = _interval(updated, replaced + updated)
        yield Row("R13", f"failures that end in place, {job} job (%)", share, ours, low, high, why)


def r14() -> Iterator[Row]:
    """Yield the network's share of failures (band: 1.5 points) and of GPU-hours (band: the source's range),
    and the time that a failed cable costs, as the median of network failures (band: a factor of 1.5)."""
    plan, runs = _declared()
    names = [failure.name for failure in plan.failures]
    network = [names.index(name) for name in ("cable", "switch", "NIC")]
    deaths = np.sum([run.interruptions for run in runs], axis=0)
    lost_h = np.sum([run.by_cause_h for run in runs], axis=0)[network].sum()
    share = 100 * lost_h / sum(run.gpu_h[:-1].sum() for run in runs)
    minutes = sum(_each_s("cable", stage) for stage in BINS[1:-1]) / 60
    part = 100 * deaths[network].sum() / deaths.sum()
    others = "the planner has Llama 3's causes, of which 42 of 419 are the network's; SHIFT counts Alibaba's"
    yield Row("R14", "network's part in failures (%)", "15.8", part, 14.3, 17.3, others)
    fast = (
        "four of five such failures are cables, which ByteRobust's inspection finds in half a minute and a "
        "standby replaces in a minute; the survey says neither what its fleets have nor how often they fail"
    )
    yield Row("R14", "network's part in GPU-hours, no scheme (%)", "10 to 15", share, 10.0, 15.0, fast)
    yield Row("R14", "minutes that a network failure costs, median", "68", minutes, 45.0, 102.0, fast)


def r15() -> Iterator[Row]:
    """Yield the loss of replica groups that leave and rejoin (band: 7 % of its form, three standard
    deviations), and the number of job deaths in more than 1,000 failures of such groups (band: torchft's
    number, none)."""
    groups, rejoin_s = 32, 60.0
    plan, _ = _declared(f"plan.replica_groups={groups}:plan.rejoin_s={rejoin_s}")
    failures = tuple(failure for failure in plan.failures if failure.stalls_s)
    per_s = sum(failure.per_s for failure in failures)
    never = Tier("remote", np.inf, 0.0, 0.0, Loss.PEERS)
    out = _run(replace(plan, failures=failures, tiers=(never,), duration_s=_DEATHS / per_s), 0)
    form = forms.replica_groups_ettr(per_s, rejoin_s, groups, FleetInput().iteration_s)
    what = f"share lost with {groups} replica groups, beside the form (%)"
    yield _near("R15", what, 100 * (1 - form), 100 * (1 - out.ettr), 0.07)
    what = f"deaths of it in {int(out.stalls.sum()):,} failures of groups"
    yield Row("R15", what, "0", float(out.interruptions.sum()), 0.0, 0.0)


FIGURES: Mapping[str, Callable[[], Iterator[Row]]] = {
    "R1": r1, "R2": r2, "R3": r3, "R4": r4, "R5": r5, "R6": r6, "R7": r7, "R8": r8, "R9": r9, "R10": r10,
    "R11": r11, "R12": r12, "R13": r13, "R14": r14, "R15": r15,
}  # fmt: skip


def rows() -> list[Row]:
    """Return all rows."""
    return list(chain.from_iterable(figure() for figure in FIGURES.values()))


@cache
def _declared(changes: str = "") -> tuple[Plan, list[Outcome]]:
    """Return the shipped planner's plan without a scheme, and its runs. changes: KEY=VALUE of `fabric.fleet`,
    separated by colons."""
    texts = [f"fabric.fleet.{change}" for change in changes.split(":") if change]
    scenario = with_overrides(
        load(shipped.path_of("scenario", "planner")),
        ["vary={}", "policies=[none]", f"seeds={list(_SEEDS)}", *texts],
    )
    worlds = [build_world(spec) for spec in expand(scenario)]
    fleet = fabric_of(scenario).fleet
    assert fleet is not None
    assert fleet.plan is not None
    plan = plan_of(worlds[0], fleet, fleet.plan)
    return plan, [simulate(plan, world.measure) for world in worlds]


@cache
def _each_s(cause: str, stage: str, changes: str = "") -> float:
    """Return the mean time of a stage of BINS after a failure of the cause, if nothing else fails, s."""
    plan, _ = _declared(changes)
    failure = next(failure for failure in plan.failures if failure.name == cause)
    rare = replace(failure, per_s=_RARE_PER_S)
    out = _run(replace(plan, failures=(rare,), duration_s=_DEATHS / _RARE_PER_S), 0)
    spent_h = out.by_cause_h[0, BINS.index(stage)] / (plan.nodes * plan.gpus_per_node)
    return float(spent_h * HOUR_S / out.interruptions[0])


def _deaths() -> dict[str, float]:
    """Return the mean number of deaths by cause of the shipped planner; switches and cables are one cause."""
    plan, runs = _declared()
    means = np.mean([run.interruptions for run in runs], axis=0)
    counts = {failure.name: float(mean) for failure, mean in zip(plan.failures, means, strict=False)}
    counts["switch or cable"] = counts.pop("switch") + counts.pop("cable")
    return counts


def _ettr(runs: list[Outcome]) -> float:
    return float(np.mean([run.ettr_queue for run in runs]))


def _interval(count: int, of: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a share of counts, percent."""
    found = stats.binomtest(count, of).proportion_ci()
    return 100 * float(found.low), 100 * float(found.high)


def _single(nodes: int, per_s: float, tier: Tier, update_s: float = 0.0) -> Plan:
    cause = Failure("any", per_s, 0.0, Loss.NODE, Action.UPDATE, HOUR_S)
    return Plan(nodes, 8, 360 * DAY_S, (cause,), (tier,), update_s=update_s)


def _run(plan: Plan, seed: int) -> Outcome:
    return simulate(plan, np.random.SeedSequence(seed))
