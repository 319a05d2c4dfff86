"""docs/results/market.md: policies for deadlines on spot machines beside the optimum, and spotDNN's figures.

For: `python -m studies market`. Not for: deciding (control/market) or playing (twin/cloud/deadline.py).
No policy was fitted on the windows that are judged here. The page also shows free windows, on which no policy
is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from control.market import make as policy
from control.market.ports import Real, Terms
from studies import harness
from studies.harness import Asked, table
from studies.judge import aim
from studies.market import clouds, published, regions, spotdnn
from traces.readers.deadlines import Games, Variant
from twin.cloud.deadline import Windows, optimum_usd, play

OURS = "planned"
REFERENCE = ("greedy", "uniform-progress")
EVERY = 23
"""One of this many free windows is played, because free windows overlap."""


@dataclass(frozen=True, slots=True)
class Row:
    """Mean costs of a variant over its games, US$ a window.

    variant: its name.
    optimum, greedy, uniform, ours: mean costs.
    late: number of windows in which any policy was late.
    apart: largest difference from a reference cost, NaN without any.
    """

    variant: str
    optimum: float
    greedy: float
    uniform: float
    ours: float
    late: int
    apart: float


GROUPS: dict[str, tuple[Callable[[str], bool], float]] = {
    "single, 8 variants": (lambda name: name.startswith(("single_high", "single_low")), 1.07),
    "single, small restart": (
        lambda name: name.startswith(("single_high", "single_low")) and name.endswith("small"),
        1.03,
    ),
    "single, large restart": (
        lambda name: name.startswith(("single_high", "single_low")) and name.endswith("large"),
        1.13,
    ),
    "zones, 4 variants": (lambda name: name.startswith("zones"), 1.04),
    "several zones, high": (lambda name: name.startswith("multi_high"), 1.05),
    "several zones, low": (lambda name: name.startswith("multi_low"), np.nan),
}
"""Groups of variants by their names, and the largest ratio to the optimum that is aimed at."""


def terms_of(variant: Variant) -> Terms:
    """Return a variant's terms."""
    return Terms(
        variant.work_s, variant.deadline_s, variant.restart_s, variant.tick_s, variant.on_demand_usd_h
    )


def played(games: Games, variant: Variant, *, judged: bool) -> Row:
    """Return the costs of one variant: the mean over games of the mean over windows."""
    terms, means, late, apart = terms_of(variant), [], 0, [np.nan]
    for game in variant.games:
        numbers, available, price = games.windows(variant, game, judged=judged)
        step = 1 if judged else EVERY
        windows = Windows(available[::step], price[::step])
        costs: list[Real] = [optimum_usd(terms, windows)]
        for name in (*REFERENCE, OURS):
            result = play(policy(name, terms), terms, windows)
            late += int((result.finish_s > terms.deadline_s).sum())
            costs.append(result.cost_usd)
        means.append([cost.mean() for cost in costs])
        if judged:
            known = np.array([games.reference[variant.name, game, number] for number in numbers])
            apart.append(float(np.abs(np.array(costs[:3]).T - known).max()))
    optimum, greedy, uniform, ours = np.mean(means, axis=0).tolist()
    largest = max(apart[1:]) if judged else np.nan
    return Row(variant.name, optimum, greedy, uniform, ours, late, largest)


def make(asked: Asked) -> int:
    """Play every window and write the page."""
    games = Games(asked.public_data("cant_be_late"))
    check, judged, free = harness.clock(asked.minutes), [], []
    for variant in games.variants:
        judged.append(played(games, variant, judged=True))
        check()
        if not variant.name.startswith("single_mixed"):
            free.append(played(games, variant, judged=False))
        check()
    more = published.parts(asked.public_data("spot_availability"), check)
    more += [*regions.parts(regions.rows(games, terms_of, check))]
    more += clouds.parts(clouds.rows(asked.public_data("gavel_throughputs"), check))
    harness.publish("market", document(judged, free, more), asked.out)
    return 0


def document(judged: Sequence[Row], free: Sequence[Row], more: Sequence[str] = ()) -> str:
    """Return the page's text. more: parts of the other studies."""
    single = _group(judged, GROUPS["single, 8 variants"][0])
    ours, uniform, greedy = (value / single.optimum for value in (single.ours, single.uniform, single.greedy))
    late, apart = sum(row.late for row in (*judged, *free)), max(row.apart for row in judged)
    cheaper = sum(row.ours < row.uniform for row in judged if not row.variant.startswith("multi"))
    alone = sum(not row.variant.startswith("multi") for row in judged)
    answer = (
        f"In one zone our policy costs {ours:.3f} times the optimum in hindsight, Uniform Progress "
        f"{uniform:.3f} and greedy {greedy:.3f} times.",
        f"It is cheaper than Uniform Progress in {cheaper} of {alone} variants of one zone, and {late} "
        "windows of any policy were late.",
        f"Optimum, greedy and Uniform Progress differ from their known costs by {apart:.4f} $ at most.",
    )
    heads = (
        "variants",
        "optimum, $",
        "ours",
        "Uniform Progress",
        "greedy",
        "goal",
        "verdict",
        "ours on free windows",
    )
    groups = [_verdict(name, judged, free) for name in GROUPS]
    columns = ("variant", "optimum, $", "ours, $", "ours", "Uniform Progress", "greedy", "late", "off, $")
    parts = (
        "## Groups of variants",
        "Figures are ratios to the optimum. Free windows come from the same traces, judge nobody, and "
        f"overlap, so one in {EVERY} is played.",
        table(heads, groups),
        "## Every variant",
        table(columns, [_line(row) for row in judged]),
        "`off`: largest difference of a window's cost from its known cost, over the three known policies.",
        *more,
        *spotdnn.parts(),
    )
    conditions = (
        "Availability of AWS machines in 2022 and 2023 (SkyPilot's spot traces, no licence stated; "
        "windows and job parameters from Frontier-CS, MIT). A job has 48 h of work (24 h in several zones). "
        "A restart takes 3 min (small) or 12 min (large). Ticks have 600 s and 195 s, and whole ticks are "
        "paid.",
        "The grid of our policy and its priors were chosen on the free windows; the rest was set once "
        "([decision 0046](../decisions/0046-spells-that-age-slowly.md)). Its form was chosen after "
        "a look at how long spells last on these traces, so this is no blind test.",
    )
    return harness.page("market", "Deadlines on spot machines", answer, parts, conditions)


def _group(rows: Iterable[Row], member: Callable[[str], bool]) -> Row:
    """Return the mean of the variants of a group."""
    mine = [row for row in rows if member(row.variant)]
    costs = np.array([(row.optimum, row.greedy, row.uniform, row.ours) for row in mine])
    optimum, greedy, uniform, ours = costs.mean(axis=0).tolist()
    return Row("", optimum, greedy, uniform, ours, sum(row.late for row in mine), np.nan)


def _verdict(name: str, judged: Sequence[Row], free: Sequence[Row]) -> list[str]:
    member, goal = GROUPS[name]
    row, other = _group(judged, member), _group(free, member)
    ratio = row.ours / row.optimum
    if np.isnan(goal):
        goal = min(row.uniform, row.greedy) / row.optimum
    ratios = (ratio, row.uniform / row.optimum, row.greedy / row.optimum)
    return [
        name, f"{row.optimum:.2f}", *(f"{value:.3f}" for value in ratios), f"≤ {goal:.3f}", aim(ratio <=
        goal), f"{other.ours / other.optimum:.3f}",
    ]  # fmt: skip


def _line(row: Row) -> list[str]:
    ratios = (f"{value / row.optimum:.3f}" for value in (row.ours, row.uniform, row.greedy))
    return [row.variant, f"{row.optimum:.2f}", f"{row.ours:.2f}", *ratios, str(row.late), f"{row.apart:.4f}"]
