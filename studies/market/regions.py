"""Plays several regions with paid moves and probes: SkyNomad beside Uniform Progress, ours and the optimum.

For: a part of `python -m studies market`. Not for: deciding (control/market/nomad.py) or playing
(twin/cloud/deadline.py). Source of the figures beside ours: SkyNomad (arXiv 2601.06520), M6 to M9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from control.market import make
from control.market.nomad import SkyNomad
from control.market.ports import Terms
from studies.harness import table
from studies.judge import aim
from traces.readers.deadlines import Games, Variant
from twin.cloud.deadline import Windows, optimum_usd, play

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
BEST, ONE = "optimum", "UP, one region"
PROBED_H = (1 / 6, 0.5, 2.0, 6.0)
"""Times between probes that are compared, h; the source compares 10 min with 2 h."""
SOURCE = {"SkyNomad": 41.73 / 37.37, "UP(S)": 47.02 / 37.37, "UP(A)": 49.09 / 37.37, "UP(AP)": 51.00 / 37.37}
"""Cost over the optimum on the source's V100 traces (M7)."""
GAPS = {"tight": 9.60 / 33.15, "loose": 5.83 / 24.76}
"""The source's gap to the optimum, relative, at a deadline of 1.5 and 2 times the work (M8)."""


def region(zone: str) -> str:
    """Return the region of a trace's zone, e.g. us-east-1 of us-east-1a_v100_1."""
    return zone.split("_")[0][:-1]


def with_moves(terms: Terms, zones: Sequence[str]) -> Terms:
    """Return the terms with the price of carrying the checkpoint from a zone to another."""

    def usd(one: str, other: str) -> float:
        ends = {region(one), region(other)}
        return CHECKPOINT_GB * (0.0 if len(ends) == 1 else NEAR_USD_GB if ends == NEAR else FAR_USD_GB)

    return replace(terms, egress_usd=tuple(tuple(usd(one, other) for other in zones) for one in zones))


def rows(games: Games, terms_of: Callable[[Variant], Terms], check: Callable[..., None]) -> pd.DataFrame:
    """Return means of a window by variant, game and policy: cost, moves, probes, US$; starts; late ones."""
    made: list[tuple[Any, ...]] = []
    for variant in games.variants:
        for game, zones in variant.games.items() if variant.kind == "multi" else ():
            terms = terms_of(variant)
            _, available, price = games.windows(variant, game, judged=True)
            windows, priced = Windows(available, price), with_moves(terms, zones)
            key = (variant.name, game)
            made.append((*key, BEST, float(optimum_usd(priced, windows).mean()), 0.0, 0.0, 0.0, 0))
            policies = {label: make(name, priced) for label, name in POLICIES.items()}
            policies |= {_probed(hours): SkyNomad(priced, 3600 * hours) for hours in PROBED_H}
            results = {label: play(policy, priced, windows) for label, policy in policies.items()}
            for one in sorted({region(zone) for zone in zones}):
                here = [number for number, zone in enumerate(zones) if region(zone) == one]
                part = Windows(available[:, :, here], price[:, :, here])
                results[f"{ONE} {one}"] = play(make("uniform-progress", terms), terms, part)
            for label, done in results.items():
                late = int((done.finish_s > terms.deadline_s).sum())
                spent = (done.cost_usd, done.egress_usd, done.probes_usd, done.starts)
                made.append((*key, label, *(float(values.mean()) for values in spent), late))
            check()
    names = ["variant", "game", "policy", "usd", "moves", "probes", "starts", "late"]
    frame = pd.DataFrame(made, columns=names)
    frame["policy"] = frame["policy"].str.replace(rf"{ONE} .*", ONE, regex=True)
    return frame


def _probed(hours: float) -> str:
    return f"{60 * hours:.0f} min"


def parts(found: pd.DataFrame) -> list[str]:
    """Return the section of the page."""
    names = [*POLICIES, ONE]
    games = found.groupby(["variant", "game", "policy"], sort=False).mean(numeric_only=True)
    mean: Any = games.groupby(["variant", "policy"], sort=False).mean()
    usd: Any = mean["usd"].unstack("policy").loc[list(dict.fromkeys(found["variant"]))]
    ratio, nomad = usd.div(usd[BEST], axis=0), mean.xs("SkyNomad", level="policy")
    total = usd.sum() / usd[BEST].sum()
    lines = [
        [name, f"{usd.loc[name, BEST]:.2f}", *(f"{ratio.loc[name, one]:.3f}" for one in names),
         *(f"{nomad.loc[name, kind]:.2f}" for kind in ("moves", "probes", "starts"))]
        for name in usd.index
    ]  # fmt: skip
    lines.append(["all", f"{usd[BEST].mean():.2f}", *(f"{total[one]:.3f}" for one in names), *["–"] * 3])
    source = [[name, f"{SOURCE[name]:.3f}", f"{total[name]:.3f}"] for name in SOURCE]
    for kind, gap in GAPS.items():
        mine = usd[usd.index.str.contains(f"_{kind}_")].mean()
        source.append(
            [f"SkyNomad, {kind} deadline", f"{1 + gap:.3f}", f"{mine['SkyNomad'] / mine[BEST]:.3f}"]
        )
    order = bool(total["SkyNomad"] < min(total[name] for name in ("UP(S)", "UP(A)", "UP(AP)")))
    every = mean.groupby(level="policy").mean()
    probes = [
        [_probed(hours), *(f"{every.loc[_probed(hours), kind]:.2f}" for kind in ("usd", "probes"))]
        for hours in PROBED_H
    ]
    heads = ("variant", "optimum, $", *names, "moves, $", "probes, $", "starts")
    return [
        "## Several regions, where moves and probes cost money",
        f"SkyNomad costs {total['SkyNomad']:.3f} times the optimum, UP(S) {total['UP(S)']:.3f} and ours "
        f"{total['ours']:.3f} times; {int(found['late'].sum())} windows of any policy were late. SkyNomad "
        f"below all of UP(S), UP(A) and UP(AP), as in the source: {aim(order)}. Ratios to the optimum, which "
        "pays for moves and needs no probes; moves, probes and starts are SkyNomad's.",
        table(heads, lines),
        "Beside the source (M7: its own V100 traces with restarts of 6 min; M8: deadlines of 1.5 and 2 times "
        "the work), cost over the optimum:",
        table(("policy", "source", "here"), source),
        "SkyNomad by the time between probes (M9), means of a window:",
        table(("probes every", "cost, $", "of it probes, $"), probes),
        "SkyNomad, UP(A) and UP(AP) see a zone only when they hold, try or probe it. Ours, greedy and UP(S) "
        "see all zones for free, which is an advantage. A checkpoint has 50 GB. The data lack the source's "
        "real runs (M6), its H100 traces and the other value functions of M8.",
    ]
