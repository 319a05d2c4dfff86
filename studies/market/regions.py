"""Several regions with moves and probes that cost money: SkyNomad beside Uniform Progress, ours and the
optimum.

For: a part of `python -m studies market`. Not for: deciding (control/market/nomad.py) or playing
(twin/cloud/deadline.py). Source of the figures beside ours: SkyNomad (arXiv 2601.06520), M6 to M9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from control.market import make
from control.market.nomad import SkyNomad
from control.market.ports import Real, Terms
from studies.harness import table
from studies.judge import aim
from traces.readers.deadlines import Games, Variant
from twin.cloud.deadline import Played, Windows, optimum_usd, play

CHECKPOINT_GB = 50.0
FAR_USD_GB, NEAR_USD_GB = 0.02, 0.01
"""Price of moving data between regions of the United States, and between the two eastern ones."""
NEAR = frozenset({"us-east-1", "us-east-2"})
POLICIES = {
    "SkyNomad": "sky-nomad",
    "UP(S)": "uniform-progress",
    "UP(A)": "available-progress",
    "UP(AP)": "value-progress",
    "greedy": "greedy",
    "ours": "planned",
}
ONE = "UP, one region"
PROBED_H = (1 / 6, 0.5, 2.0, 6.0)
"""Times between probes that are compared, h; the source compares 10 min with 2 h."""
SOURCE = {"SkyNomad": 41.73 / 37.37, "UP(S)": 47.02 / 37.37, "UP(A)": 49.09 / 37.37, "UP(AP)": 51.00 / 37.37}
"""Cost over the optimum on the source's V100 traces (M7)."""
GAPS = {"tight": 9.60 / 33.15, "loose": 5.83 / 24.76}
"""The source's gap to the optimum, relative, at a deadline of 1.5 and 2 times the work (M8)."""


@dataclass(frozen=True, slots=True)
class Row:
    """Means of a variant over its games, US$. cost: by policy; late: windows that ended late; egress, probes,
    starts: of SkyNomad; probed: its cost and that of its probes by time between probes."""

    variant: str
    optimum: float
    cost: dict[str, float]
    late: int
    egress: float
    probes: float
    starts: float
    probed: dict[float, tuple[float, float]]


def region(zone: str) -> str:
    """Return the region of a trace's zone, e.g. us-east-1 of us-east-1a_v100_1."""
    return zone.split("_")[0][:-1]


def with_moves(terms: Terms, zones: Sequence[str]) -> Terms:
    """Return the terms with the price of carrying the checkpoint from a zone to another."""

    def usd(one: str, other: str) -> float:
        ends = {region(one), region(other)}
        return CHECKPOINT_GB * (0.0 if len(ends) == 1 else NEAR_USD_GB if ends == NEAR else FAR_USD_GB)

    return replace(terms, egress_usd=tuple(tuple(usd(one, other) for other in zones) for one in zones))


def played(games: Games, variant: Variant, terms: Terms) -> Row:
    """Return the means of one variant with several zones."""
    late, means, probed = 0, list[list[float]](), list[list[tuple[float, float]]]()
    for game, zones in variant.games.items():
        _, available, price = games.windows(variant, game, judged=True)
        windows, priced = Windows(available, price), with_moves(terms, zones)
        best: Real = optimum_usd(priced, windows)
        results = [play(make(name, priced), priced, windows) for name in POLICIES.values()]
        alone = [_alone(terms, zones, one, windows) for one in sorted({region(zone) for zone in zones})]
        late += sum(int((result.finish_s > terms.deadline_s).sum()) for result in (*results, *alone))
        nomad, mean = results[0], float(np.mean([one.cost_usd.mean() for one in alone]))
        spent = (nomad.egress_usd.mean(), nomad.probes_usd.mean(), nomad.starts.mean())
        costs = (best.mean(), *(result.cost_usd.mean() for result in results), mean)
        means.append([float(value) for value in (*costs, *spent)])
        again = [play(SkyNomad(priced, 3600 * hours), priced, windows) for hours in PROBED_H]
        probed.append([(float(one.cost_usd.mean()), float(one.probes_usd.mean())) for one in again])
    optimum, *rest, egress, probes, starts = np.mean(means, axis=0).tolist()
    by_time = {
        hours: (usd, of_it) for hours, (usd, of_it) in zip(PROBED_H, np.mean(probed, axis=0), strict=True)
    }
    cost = dict(zip((*POLICIES, ONE), rest, strict=True))
    return Row(variant.name, optimum, cost, late, egress, probes, starts, by_time)


def _alone(terms: Terms, zones: Sequence[str], one: str, windows: Windows) -> Played:
    here = [number for number, zone in enumerate(zones) if region(zone) == one]
    part = Windows(windows.available[:, :, here], windows.spot_usd_h[:, :, here])
    return play(make("uniform-progress", terms), terms, part)


def rows(games: Games, terms_of: Callable[[Variant], Terms], check: Callable[..., None]) -> list[Row]:
    """Return every variant with several zones."""
    made = []
    for variant in games.variants:
        if variant.kind == "multi":
            made.append(played(games, variant, terms_of(variant)))
            check()
    return made


def parts(found: Sequence[Row]) -> list[str]:
    """Return the section of the page."""
    names = (*POLICIES, ONE)
    total = sum(row.optimum for row in found)
    ratio = {name: sum(row.cost[name] for row in found) / total for name in names}
    lines = [
        [
            row.variant, f"{row.optimum:.2f}", *(f"{row.cost[name] / row.optimum:.3f}" for name in names),
            f"{row.egress:.2f}", f"{row.probes:.2f}", f"{row.starts:.0f}", row.late,
        ]
        for row in found
    ]  # fmt: skip
    lines.append(["all", f"{total / len(found):.2f}", *(f"{ratio[name]:.3f}" for name in names), *["–"] * 3,
                  sum(row.late for row in found)])  # fmt: skip
    source = [[name, f"{SOURCE[name]:.3f}", f"{ratio[name]:.3f}"] for name in SOURCE]
    for kind, gap in GAPS.items():
        mine = [row for row in found if f"_{kind}_" in row.variant]
        ours = sum(row.cost["SkyNomad"] for row in mine) / sum(row.optimum for row in mine)
        source.append([f"SkyNomad, {kind} deadline", f"{1 + gap:.3f}", f"{ours:.3f}"])
    order = ratio["SkyNomad"] < min(ratio[name] for name in ("UP(S)", "UP(A)", "UP(AP)"))
    probes = [
        [
            f"{60 * hours:.0f} min",
            *(f"{np.mean([row.probed[hours][part] for row in found]):.2f}" for part in (0, 1)),
        ]
        for hours in PROBED_H
    ]
    heads = ("variant", "optimum, $", *names, "moves, $", "probes, $", "starts", "late")
    return [
        "## Several regions, where moves and probes cost money",
        f"SkyNomad costs {ratio['SkyNomad']:.3f} times the optimum, UP(S) {ratio['UP(S)']:.3f} and ours "
        f"{ratio['ours']:.3f} times. SkyNomad below all of UP(S), UP(A) and UP(AP), as in the source: "
        f"{aim(order)}. Ratios to the optimum, which pays for moves and needs no probes; moves, probes and "
        "starts are SkyNomad's.",
        table(heads, lines),
        "Beside the source (M7: its own V100 traces with restarts of 6 min; M8: deadlines of 1.5 and 2 times "
        "the work), cost over the optimum:",
        table(("policy", "source", "here"), source),
        "SkyNomad by the time between probes (M9), means of a window:",
        table(("probes every", "cost, $", "of it probes, $"), probes),
        "SkyNomad, UP(A) and UP(AP) see a zone only when they hold it, try it or probe it; ours, greedy and "
        "UP(S) see all zones for free, so they are given more. A checkpoint has 50 GB. The source's real "
        "runs (M6), its H100 traces and the other value functions of M8 are not in the data.",
    ]
