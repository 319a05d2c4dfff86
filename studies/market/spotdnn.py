"""spotDNN's figures on the market page: what the source reports beside ours, S1 to S8.

For: the rows and their constants. Not for: deciding (control.recommender) or measuring (unequal.py). The
constants are those of the paper and of its authors' repository, and none was fitted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from control.recommender.spotdnn import (
    Goal,
    Training,
    WorkerKind,
    compute_s,
    convergence_coefficient,
    predict,
)
from control.recommender.spotdnn_plans import (
    Plan,
    Provision,
    Search,
    cm_dare,
    fastest,
    provision,
    slowest,
    srifty,
)
from studies.harness import table
from studies.market import unequal

RESNET = Training(11.54, 1200, 142, 10_000, (0.8, -1.92), (876.5, -0.2, 2507.6, 1.0, 0.5), unequal=False)
"""ResNet-110. The repository's loss curve is an older form without R: R + γ4 is 1."""
TYPES = {
    "p3.2xlarge": (1885, 1024, 1, 1.25, 3.06),
    "g4dn.4xlarge": (750, 1024, 1, 0.3612, 1.20),
    "g3.8xlarge": (1018, 512, 2, 0.684, 2.28),
    "g3.16xlarge": (1995, 512, 4, 1.37, 4.56),
    "p2.8xlarge": (2115, 1024, 8, 2.16, 7.20),
}
"""Samples per second of ResNet-110, batch per GPU, GPUs, spot and on-demand price in January 2023, US$/h."""
QUOTAS_S1 = dict.fromkeys(("g4dn.4xlarge", "g3.8xlarge", "g3.16xlarge", "p2.8xlarge"), 5)
QUOTAS_S5 = dict(zip(TYPES, (2, 5, 5, 8, 5), strict=True))
"""The repository's quotas: the paper's text says 10 of each, at which none of its plans is the cheapest."""
GOAL_S1 = Goal(0.8, 2600.0)
PLANS_S1 = {
    "spotDNN": ((0, 0, 5, 3, 0), 2549.02, 5.33),
    "CM-DARE+": ((0, 0, 4, 3, 0), 2710.85, 5.16),
    "Srifty+": ((0, 2, 5, 2, 0), 2597.34, 4.97),
}
PLANS_S5 = (
    (0.9, 1900.0, (2, 0, 2, 0, 0)),
    (0.8, 2400.0, (2, 0, 4, 0, 0)),
    (0.7, 3700.0, (2, 1, 4, 0, 0)),
)
SAME, NOT, OPEN = "reproduced", "not reproduced", "not computed"
_HEADS = ("id", "what", "source", "ours", "mark", "verdict", "why")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. mark: V as the source says, R by a reading of ours; why: if it is not the same."""

    id: str
    what: str
    source: str
    ours: str
    mark: str
    verdict: str
    why: str = ""


def kinds(quotas: Mapping[str, int], *, on_demand: bool = False) -> list[WorkerKind]:
    """Return the types with a quota, at spot prices or on demand."""
    made = []
    for name, quota in quotas.items():
        per_s, batch, gpus, spot, demand = TYPES[name]
        alone_s = batch * gpus / per_s
        price = demand if on_demand else spot
        made.append(
            WorkerKind(name, price, quota, batch * gpus, gpus, compute_s(RESNET, gpus, alone_s), demand)
        )
    return made


def evaluated(counts: Sequence[int], goal: Goal, *, on_demand: bool = False) -> tuple[float, float]:
    """Return predicted time and cost of a cluster, in the order of TYPES, s and US$, without
    over-prediction."""
    among = kinds(dict.fromkeys(TYPES, 10), on_demand=on_demand)
    time_s = float(predict(RESNET, among, np.array([counts]), goal).time_s[0])
    prices = [kind.price_usd_h for kind in among]
    return time_s, time_s / 3600 * float(np.dot(counts, prices))


def plan_of(answer: Provision) -> tuple[int, ...]:
    """Return a plan's workers in the order of TYPES; none for an answer without a plan."""
    return tuple((answer.plan.workers if answer.plan else {}).get(name, 0) for name in TYPES)


def rows(store: Path = unequal.STORE) -> list[Row]:
    """Return the table's lines. store: of the measurements."""
    return [*_s1(), *_s2(store), *_s4(), *_s5(), *_s6(), *_s7(store), *_missing()]


def _s1() -> list[Row]:
    among = kinds(QUOTAS_S1)
    chosen = {
        "spotDNN": provision(RESNET, among, GOAL_S1),
        "CM-DARE+": provision(cm_dare(RESNET), among, GOAL_S1, over=0.0),
        "Srifty+": provision(srifty(RESNET), among, GOAL_S1, search=Search.EXHAUSTIVE, over=0.0),
    }
    found = []
    for name, (counts, source_s, source_usd) in PLANS_S1.items():
        time_s, cost = evaluated(counts, GOAL_S1)
        mark = "V" if name == "spotDNN" else "R"
        same = plan_of(chosen[name]) == counts
        why = "" if same else "without contention 7 workers have the same time here, and are late, too"
        found.append(Row("S1", f"{name}: plan", text(counts), text(plan_of(chosen[name])), mark,
                         SAME if same else NOT, why))  # fmt: skip
        near = abs(time_s - source_s) < 0.1 and round(cost, 2) == source_usd
        apart = f"{time_s / source_s - 1:+.2%}: the source's own figure needs constants that it does not give"
        found.append(
            Row(
                "S1", f"{name}: time and cost of the source's plan", f"{source_s:.2f} s, {source_usd:.2f} $",
                f"{time_s:.2f} s, {cost:.2f} $", mark, SAME if near else NOT, "" if near else apart,
            )
        )  # fmt: skip
    counts = PLANS_S1["spotDNN"][0]
    spot, demand = evaluated(counts, GOAL_S1)[1], evaluated(counts, GOAL_S1, on_demand=True)[1]
    same = abs(demand - 17.75) <= 0.01
    found.append(
        Row("S1", "the same plan on demand", "17.75 $, −69.9 %", f"{demand:.2f} $, {spot / demand - 1:.1%}",
            "V", SAME if same else NOT, "to a cent")
    )  # fmt: skip
    return found


def _s2(store: Path) -> list[Row]:
    measured, told = unequal.compared(store), unequal.known(store)
    what = "error of predicted time, clusters of 2 to 8 workers"
    if not measured or told is None:
        return [Row("S2", what, "1.8–6.9 %; CM-DARE to 73.5 %", "–", "V", OPEN, "not measured yet")]
    errors = [abs(row.error) for row in measured]
    ours = (
        f"{min(errors):.1%}–{max(errors):.1%}; CM-DARE+ to {max(abs(row.dare_error) for row in measured):.1%}"
    )
    verdict = SAME if max(errors) <= 0.069 else NOT
    each = ", ".join(f"{row.workers}: {row.error:+.1%}" for row in measured)
    why = f"on the testbed; by workers {each}; R² of the contention fit {told.fit.r2:.2f}"
    return [Row("S2", what, "1.8–6.9 %; CM-DARE to 73.5 %", ours, "V", verdict, why)]


def _s4() -> list[Row]:
    found = [
        Row("S4", f"R of {count} equal workers", source, f"{coefficient((count, 0), 1.0):.2f}", "V",
            SAME if f"{coefficient((count, 0), 1.0):.2f}" == source else NOT)
        for count, source in ((2, "0.71"), (3, "0.82"), (4, "0.87"))
    ]  # fmt: skip
    for job, known, figures in (
        ("VGG-19", ((1, 1), 0.51), (((2, 1), 0.75),)),
        ("EsperBERTo", ((3, 7), 0.87), (((7, 3), 0.93), ((5, 5), 0.90), ((3, 1), 0.83), ((2, 1), 0.59))),
    ):
        ratio = speeds(*known)
        for counts, source in figures:
            ours = coefficient(counts, ratio)
            near = abs(ours - source) <= 0.01
            lowest = sqrt((counts[0] - 1) / counts[0])
            why = f"speeds are not given: a ratio of {ratio:.2f} follows from {known[0]} with {known[1]}"
            if not near:
                why += f"; {counts[0]} fast workers alone have {lowest:.2f}, and no third can make it less"
            found.append(
                Row("S4", f"{job}: R of {counts[0]} fast and {counts[1]} slow", f"{source:.2f}",
                    f"{ours:.3f}", "R", SAME if near else NOT, why)
            )  # fmt: skip
    return found


def coefficient(counts: tuple[int, int], ratio: float) -> float:
    """Return R of so many fast and slow workers. ratio: of their speeds."""
    return float(convergence_coefficient(np.array([[ratio, 1.0]]), np.array([counts]))[0])


def speeds(counts: tuple[int, int], known: float) -> float:
    """Return the ratio of speeds at which a cluster has a known R."""
    return float(brentq(lambda ratio: coefficient(counts, ratio) - known, 1.0, 10.0))


def _s5() -> list[Row]:
    found = []
    for loss, time_s, counts in PLANS_S5:
        goal = Goal(loss, time_s)
        ours = provision(RESNET, kinds(QUOTAS_S5), goal)
        same = plan_of(ours) == counts
        found.append(Row("S5", f"ResNet-110 plan, loss {loss:g} in {time_s:.0f} s", text(counts),
                         text(plan_of(ours)), "V", SAME if same else NOT,
                         "" if same else _dearer(counts, goal, ours.plan)))  # fmt: skip
    why = "computing times of Inception-v3 are not given"
    found.append(Row("S5", "Inception-v3 plans", "3 plans", "–", "V", OPEN, why))
    return found


def _dearer(counts: tuple[int, ...], goal: Goal, plan: Plan | None) -> str:
    """Return why another plan than the source's was taken."""
    time_s, cost = evaluated(counts, goal)
    if plan is None:
        return f"no plan in time; the source's needs {time_s:.0f} s"
    return (
        f"with these constants the source's plan costs {cost:.2f} $, ours {plan.cost_usd:.2f} $ in "
        f"{plan.time_s:.0f} s; γ1–γ5 with R are not given"
    )


def _s6() -> list[Row]:
    among = kinds(QUOTAS_S1)
    homogeneous = {
        "Homo-fast": provision(RESNET, [fastest(RESNET, among)], GOAL_S1),
        "Homo-slow": provision(RESNET, [slowest(RESNET, among)], GOAL_S1),
    }
    said = "; ".join(
        f"{name}: {f'{answer.plan.cost_usd:.2f} $' if answer.plan else answer.reason}"
        for name, answer in homogeneous.items()
    )
    why = "on the goal of S1: the source does not say on which goal its figures are"
    return [
        Row("S6", "one type only", "Homo-fast +18.5 %, Homo-slow late", said, "V", OPEN, why),
        Row("S6", "planning among 70 instances", "0.3 s; exhaustive 1,503.7 s", "–", "V", OPEN,
            "`python -m benchmarks spotdnn` prints it"),
    ]  # fmt: skip


def _s7(store: Path) -> list[Row]:
    what = "one revocation: from the loss to the takeover; speed in between"
    if not (store / f"{unequal.REVOCATION}.json").exists():
        return [Row("S7", what, "29.6 s degraded", "–", "V", OPEN, "not measured yet")]
    cell = unequal.read(store, unequal.REVOCATION)
    degraded_s = cell["joined_s"] - cell["killed_s"]
    gap = "takeover joined before the loss" if degraded_s <= 0 else f"{degraded_s:.1f} s degraded"
    between = "–" if cell["between"] is None else f"{cell['between'] / cell['before']:.0%}"
    ours = f"{gap}; {between} of the speed in between, {cell['after'] / cell['before']:.0%} afterwards"
    went_on = cell["longest_pause_s"] < 10 and cell["after"] > 0.8 * cell["before"]
    why = (
        f"shape only: on the testbed a notice of {unequal.NOTICE_S:g} s stands for 120 s, and a machine is "
        f"there at once; the longest pause of the others was {cell['longest_pause_s']:.1f} s"
    )
    return [Row("S7", what, "29.6 s degraded", ours, "R", "same shape" if went_on else NOT, why)]


def _missing() -> list[Row]:
    return [
        Row("S3", "error of iterations to a loss", "3.1–7.1 %; 4.8–11.7 %", "–", "V", OPEN,
            "the loss curves that the source measured are not public"),
        Row("S8", "contention of VGG-19; profiling times", "−65.7 % at 8 workers", "–", "V", OPEN,
            "α1, β1 and computing times of VGG-19 are not given; the machines are not ours"),
    ]  # fmt: skip


def text(counts: Sequence[int]) -> str:
    """Return a cluster in words."""
    short = (name.removesuffix("xlarge").removesuffix("large") for name in TYPES)
    chosen = [f"{count} × {name}" for name, count in zip(short, counts, strict=True) if count]
    return " + ".join(chosen) or "none"


def parts(store: Path = unequal.STORE) -> tuple[str, ...]:
    """Return the parts of the market page about spotDNN."""
    lines = [(row.id, row.what, row.source, row.ours, row.mark, row.verdict, row.why) for row in rows(store)]
    return (
        "## spotDNN: unequal spot machines that train to a loss in time",
        "Asynchronous training with a parameter server (spotDNN, IWQoS 2023). V: the source's text or code "
        "gives what is needed; R: by a reading of ours. The parameter server is in no cost.",
        table(_HEADS, lines, left=len(_HEADS)),
        "S2 and S7 are measured on emulated machines (`python -m studies unequal`): CPU quotas of "
        f"{unequal.SMALL.cores:g}, {unequal.MEDIUM.cores:g} and {unequal.LARGE.cores:g} cores, links of "
        f"{unequal.WORKER_MB_S:g} MB/s, the server's of {unequal.SERVER_MB_S:g} MB/s, real training over gloo. "
        "Profiles: each type alone, then clusters of 2, 4 and 7; the judged clusters are others.",
    )
