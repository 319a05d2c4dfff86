"""spotDNN's figures on the market page: what the source reports beside ours, S1 to S8.

For: the rows and their constants. Not for: deciding (control.recommender) or measuring (unequal.py). The
constants are those of the paper and of its authors' repository, and none was fitted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

from control.recommender.spotdnn import Goal, Training, WorkerKind, convergence_coefficient, predict
from control.recommender.spotdnn_fit import compute_s
from control.recommender.spotdnn_plans import Provision, Search, by_speed, provision
from studies.harness import table
from studies.market import unequal

Row = tuple[str, str, str, str, str, str, str]
"""Id, quantity, the source's figure, ours, mark (V: by the source, R: by a reading), verdict, reason."""

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
EQUAL_S4 = {2: 0.71, 3: 0.82, 4: 0.87}
UNEQUAL_S4 = {
    "VGG-19": (((1, 1), 0.51), {(2, 1): 0.75}),
    "EsperBERTo": (((3, 7), 0.87), {(7, 3): 0.93, (5, 5): 0.90, (3, 1): 0.83, (2, 1): 0.59}),
}
"""R by job: a cluster of fast and slow workers from which the ratio of their speeds is taken, and others."""
NEAR_S4 = 0.01
SAME, NOT, OPEN = "reproduced", "not reproduced", "not compared"
_HEADS = ("id", "what", "source", "ours", "mark", "verdict", "why")


def kinds(quotas: Mapping[str, int]) -> list[WorkerKind]:
    """Return the types with a quota, for ResNet-110."""
    made = []
    for name, quota in quotas.items():
        per_s, batch, gpus, spot, demand = TYPES[name]
        computing_s = compute_s(RESNET, gpus, batch * gpus / per_s)
        made.append(WorkerKind(name, spot, quota, batch * gpus, gpus, computing_s, demand))
    return made


def evaluated(counts: Sequence[int], goal: Goal, *, on_demand: bool = False) -> tuple[float, float]:
    """Return predicted time and cost of a cluster in the order of TYPES, s and US$."""
    among = kinds(dict.fromkeys(TYPES, 10))
    time_s = float(predict(RESNET, among, np.array([counts]), goal).time_s[0])
    prices = [kind.on_demand_usd_h if on_demand else kind.price_usd_h for kind in among]
    return time_s, time_s / 3600 * float(np.dot(counts, prices))


def plan_of(answer: Provision) -> tuple[int, ...]:
    """Return a plan's workers in the order of TYPES, all 0 for an answer without a plan."""
    return tuple((answer.plan.workers if answer.plan else {}).get(name, 0) for name in TYPES)


def chosen_s1() -> dict[str, Provision]:
    """Return the plan of each planner for the goal of S1. CM-DARE+ and Srifty+ are readings: the source gives
    only their names and results."""
    among, blind = kinds(QUOTAS_S1), replace(RESNET, contended=False, unequal=False)
    every = Search.EXHAUSTIVE
    return {
        "spotDNN": provision(RESNET, among, GOAL_S1),
        "CM-DARE+": provision(blind, among, GOAL_S1, over=0.0),
        "Srifty+": provision(replace(RESNET, unequal=False), among, GOAL_S1, search=every, over=0.0),
    }


def _s1() -> list[Row]:
    found: list[Row] = []
    for name, answer in chosen_s1().items():
        counts, source_s, source_usd = PLANS_S1[name]
        mark, same = "V" if name == "spotDNN" else "R", plan_of(answer) == counts
        why = "" if same else "7 workers do not contend here, so a planner without contention is not misled"
        found.append(("S1", f"{name}: plan", text(counts), text(plan_of(answer)), mark, verdict(same), why))
        time_s, cost = evaluated(counts, GOAL_S1)
        near = abs(time_s - source_s) < 0.1 and round(cost, 2) == source_usd
        why = "pushes are rounded up" if near else f"{time_s / source_s - 1:+.2%}; nothing given explains it"
        source, ours = f"{source_s:.2f} s, {source_usd:.2f} $", f"{time_s:.2f} s, {cost:.2f} $"
        found.append(
            ("S1", f"{name}: time and cost of the source's plan", source, ours, mark, verdict(near), why)
        )
    counts = PLANS_S1["spotDNN"][0]
    spot, demand = (evaluated(counts, GOAL_S1, on_demand=market)[1] for market in (False, True))
    ours, near = f"{demand:.2f} $, {spot / demand - 1:.1%}", abs(demand - 17.75) <= 0.01
    found.append(("S1", "the same plan on demand", "17.75 $, −69.9 %", ours, "V", verdict(near), "to a cent"))
    return found


def _s2(cells: Mapping[str, unequal.Cell]) -> Row:
    measured, told = unequal.compared(cells), unequal.known(cells)
    what, source = "error of predicted time, 2 to 8 workers", "1.8–6.9 %; CM-DARE to 73.5 %"
    if not measured or told is None:
        return "S2", what, source, "–", "V", OPEN, "not measured yet"
    errors = {row.workers: row.predicted_s / row.measured_s - 1 for row in measured}
    blind = max(abs(row.dare_s / row.measured_s - 1) for row in measured)
    low, high = min(map(abs, errors.values())), max(map(abs, errors.values()))
    each = ", ".join(f"{workers} workers {error:+.1%}" for workers, error in errors.items())
    ours = f"{low:.1%}–{high:.1%}; CM-DARE+ to {blind:.1%}"
    why = f"on the testbed: {each}; R² of the fit of α1 and β1 {told.r2:.2f}"
    return "S2", what, source, ours, "V", verdict(high <= 0.069), why


def coefficient(counts: tuple[int, int], ratio: float) -> float:
    """Return R of a cluster. counts: numbers of fast and of slow workers; ratio: ratio of their speeds."""
    return float(convergence_coefficient(np.array([[ratio, 1.0]]), np.array([counts]))[0])


def _s4() -> list[Row]:
    found: list[Row] = []
    for count, equal in EQUAL_S4.items():
        said = f"{coefficient((count, 0), 1.0):.2f}"
        what = f"R of {count} equal workers"
        found.append(("S4", what, f"{equal:.2f}", said, "V", verdict(float(said) == equal), ""))
    for job, ((known, value), figures) in UNEQUAL_S4.items():
        ratio = float(brentq(lambda speeds, at, of: coefficient(at, speeds) - of, 1, 10, (known, value)))
        for counts, source in figures.items():
            ours = coefficient(counts, ratio)
            why = (
                f"speeds not given: {known[0]} fast and {known[1]} slow with {value:.2f} tell {ratio:.2f} : 1"
            )
            if not (near := abs(ours - source) <= NEAR_S4):
                why += f"; no ratio gives it, and 1 fast and 3 slow have {coefficient((1, 3), ratio):.2f}"
            what = f"{job}: R of {counts[0]} fast and {counts[1]} slow"
            found.append(("S4", what, f"{source:.2f}", f"{ours:.3f}", "R", verdict(near), why))
    return found


def _s5() -> list[Row]:
    found: list[Row] = []
    for loss, time_s, counts in PLANS_S5:
        answer = provision(RESNET, kinds(QUOTAS_S5), Goal(loss, time_s))
        same, why = plan_of(answer) == counts, ""
        if not same and answer.plan is not None:
            theirs, ours = evaluated(counts, Goal(loss, time_s))[1], answer.plan.cost_usd
            why = f"theirs costs {theirs:.2f} $ with these constants and ours {ours:.2f} $, and theirs is no "
            why += "window of neighbours; γ1 to γ5 of the curve with R are not given"
        what = f"ResNet-110: plan for loss {loss:g} in {time_s:.0f} s"
        found.append(("S5", what, text(counts), text(plan_of(answer)), "V", verdict(same), why))
    return found


def _s6() -> Row:
    order = by_speed(RESNET, kinds(QUOTAS_S1))
    ours = []
    for name, kind in (("Homo-fast", order[-1]), ("Homo-slow", order[0])):
        answer = provision(RESNET, [kind], GOAL_S1)
        ours.append(f"{name}: " + (f"{answer.plan.cost_usd:.2f} $" if answer.plan else answer.reason))
    why = "on the goal of S1; the source does not say on which goal its figures are"
    return "S6", "one type only", "Homo-fast +18.5 %, Homo-slow late", "; ".join(ours), "V", OPEN, why


def _s7(cells: Mapping[str, unequal.Cell]) -> Row:
    what = "one revocation: from the loss to the takeover"
    cell = cells.get(unequal.REVOCATION)
    if cell is None:
        return "S7", what, "29.6 s", "–", "V", OPEN, "not measured yet"
    gap_s, after = cell["joined_s"] - cell["killed_s"], cell["after"] / cell["before"]
    ours = f"{gap_s:.1f} s; {after:.0%} of the speed afterwards"
    if cell["between"] is not None:
        ours += f", {cell['between'] / cell['before']:.0%} meanwhile"
    started_s = cell["joined_s"] - cell["notice_s"]
    why = (
        f"shape only: a notice of {unequal.NOTICE_S:g} s stands for 96 s, as a worker starts in "
        f"{started_s:.1f} s, not 126; the others never paused for more than {cell['longest_pause_s']:.1f} s"
    )
    return "S7", what, "29.6 s", ours, "R", "same shape" if after > unequal.BACK else NOT, why


_NOT_COMPUTED: tuple[Row, ...] = (
    ("S3", "error of iterations to a loss", "3.1–11.7 %", "–", "V", OPEN, "its losses are not public"),
    ("S5", "Inception-v3: three plans", "–", "–", "V", OPEN, "its computing times are not given"),
    ("S6", "planning among 70 instances", "0.3 s; exhaustive 1,503.7 s", "–", "V", OPEN,
     "a timing: `python -m benchmarks spotdnn` prints it"),
    ("S8", "contention of VGG-19; profiling times", "−65.7 % at 8 workers", "–", "V", OPEN,
     "its α1, β1 and computing times are not given"),
)  # fmt: skip


def verdict(same: bool) -> str:
    """Return the verdict on a computed figure."""
    return SAME if same else NOT


def text(counts: Sequence[int]) -> str:
    """Return a cluster in words."""
    some = [
        f"{count} × {name.removesuffix('xlarge')}" for name, count in zip(TYPES, counts, strict=True) if count
    ]
    return " + ".join(some) or "none"


def parts(path: Path = unequal.MEASURED) -> tuple[str, ...]:
    """Return the parts of the market page about spotDNN. path: file of the measurements."""
    cells = unequal.read(path)
    rows = sorted(
        [*_s1(), _s2(cells), *_s4(), *_s5(), _s6(), _s7(cells), *_NOT_COMPUTED], key=lambda row: row[0]
    )
    quotas = ", ".join(f"{machine.cores:g}" for machine in (unequal.SMALL, unequal.MEDIUM, unequal.LARGE))
    return (
        "## spotDNN: unequal spot machines that train to a loss in time",
        "Asynchronous training with a parameter server (spotDNN, IWQoS 2023). V: the source's text or code "
        "gives all inputs; R: ours is a reading of the source. R of unequal workers agrees within "
        f"{NEAR_S4:g}. No cost includes the parameter server.",
        table(_HEADS, rows, left=len(_HEADS)),
        "S2 and S7 are measured on emulated machines (`python -m studies unequal`): real training over gloo, "
        f"CPU quotas of {quotas} cores, links of {unequal.WORKER_MB_S:g} MB/s, the server's of "
        f"{unequal.SERVER_MB_S:g} MB/s. The profiles are each type alone, then clusters of 2, 4 and 7; the "
        "judged clusters are others. A worker alone is a new process, because a process that trained with "
        "other batches before computes more slowly.",
    )
