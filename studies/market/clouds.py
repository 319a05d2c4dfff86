"""The ladder of cross-cloud strategies on public prices, with the speeds that Gavel's authors measured.

For: a part of `python -m studies market`. Not for: choosing (control/market/ladder.py) or playing
(twin/cloud/ladder.py). Source of the figures beside ours: "Training on a Dime" (DISPA 2020), M10 to M12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from control.market.ladder import LADDER, Job, offered
from control.market.ports import Real
from lab.cloud.run.ladder import Offers, Question, climb, collect, epoch_s
from studies.harness import table
from traces.catalogue.catalogue import load
from traces.readers import throughputs
from twin.cloud.ladder import hindsight_usd

DAY_S = 86_400.0
FIRST, LAST = "2024-01-24", "2024-05-14"
"""Days between which AWS's spot prices are known daily."""
STARTS, DAYS = 30, (0.5, 1.0, 2.0, 4.0, 8.0)
HOMES = ("us-east-1", "us-west-2")
GPUS = {"k80": "NVIDIA K80", "p100": "NVIDIA P100", "v100": "NVIDIA V100 16GB"}
SWEEP_H = (1.0, 6.0, 24.0, 168.0)
FLAT_USD = 9.0
MODELS = {
    "A3C": (1.32, 1.71, 3.10, 3.53),
    "CycleGAN": (1.00, 1.08, 1.54, 1.64),
    "LM batch 80": (1.00, 1.08, 1.70, 1.81),
    "Transformer batch 256": (1.00, 1.11, 2.36, 3.21),
}
"""The source's savings over the baseline at every later step, for 4 days of a V100 (M10). The speeds of its
other two models, Recommendation and ResNet-50, are not in the data."""
MODELLED = "modelled speeds, all GPUs"


@dataclass(frozen=True, slots=True)
class Row:
    """A model at one length. cost: US$ by step and start, float64[steps, starts]; flat: the last step where a
    move costs 9 $; moves: of the last step; hindsight: its least cost, all float64[starts]."""

    model: str
    home: str
    days: float
    cost: Real
    flat: Real
    moves: Real
    hindsight: Real
    swept: dict[float, tuple[float, float]]

    @property
    def saving(self) -> Real:
        """Cost of the baseline over that of every step, float64[steps, starts]."""
        saving: Real = self.cost[0] / self.cost
        return saving


def rows(folder: Path, check: Callable[..., None]) -> list[Row]:
    """Return every model at every length at home in us-east-1, and at 4 and 8 days in us-west-2."""
    known = throughputs.read(folder / "gavel_isolated_throughput.csv", "gavel_simulation")
    prices, made = load().prices, []
    for model in (*MODELS, MODELLED):
        speeds = None
        if model != MODELLED:
            steps_s = known.steps_per_s[1][known.models.index(model), :, 0]
            by_type = dict(zip(known.types, steps_s.tolist(), strict=True))
            speeds = {GPUS[name]: value / by_type["v100"] for name, value in by_type.items() if value > 0}
        for home in HOMES:
            asked = Question(("aws", home), GPUS["v100"], (), ("us-",), "spot", speeds)
            market = collect(prices, asked)
            for days in DAYS if home == HOMES[0] else DAYS[-2:]:
                made.append(_row(model, days, market, asked))
                check()
    return made


def _row(model: str, days: float, market: Offers, asked: Question) -> Row:
    job, last_s = Job(days * DAY_S), epoch_s(LAST) - max(DAYS) * DAY_S
    cost, flat, moves, least = [], [], [], []
    swept: dict[float, list[tuple[float, float]]] = {hours: [] for hours in SWEEP_H}
    for at_s in np.linspace(epoch_s(FIRST), last_s, STARTS).tolist():
        *others, daily = climb(job, market, asked, at_s, [DAY_S])
        assert daily.ride is not None
        cost.append([row.cost_usd for row in (*others, daily)])
        moves.append(daily.ride.moves)
        flat.append(climb(replace(job, move_usd=FLAT_USD), market, asked, at_s, [DAY_S])[-1].cost_usd)
        if days == 4.0:
            allowed = offered("dynamic", market.offers, asked.home, asked.gpu, at_s)
            least.append(hindsight_usd(job, market.offers, allowed, at_s, DAY_S))
            for hours, row in zip(
                SWEEP_H,
                climb(job, market, asked, at_s, [3600 * hours for hours in SWEEP_H])[-4:],
                strict=True,
            ):
                assert row.ride is not None
                swept[hours].append((row.cost_usd, row.ride.moves))
    means = {hours: tuple(np.mean(pairs, axis=0)) for hours, pairs in swept.items() if pairs}
    return Row(
        model, asked.home[1], days, np.array(cost).T, np.array(flat), np.array(moves), np.array(least), means
    )


def parts(found: Sequence[Row]) -> list[str]:
    """Return the section of the page."""
    steps = list(LADDER)[1:]
    at_home = {(row.model, row.days): row for row in found if row.home == HOMES[0]}
    four = [at_home[model, 4.0] for model in (*MODELS, MODELLED)]
    lines = []
    for row in four:
        source = MODELS.get(row.model, (np.nan,) * 4)
        cells = [
            f"{value:.2f} ({_known(known)})"
            for value, known in zip(row.saving[1:].mean(axis=1), source, strict=True)
        ]
        low, high = np.percentile(row.saving[-1], [25, 75])
        fails = (row.cost[-1] > row.cost[-2] + 1e-9).mean()
        lines.append(
            [
                row.model, f"{row.cost[0].mean():.2f}", *cells, f"{low:.2f}–{high:.2f}",
                f"{(row.cost[0] / row.flat).mean():.2f}", f"{row.moves.mean():.1f}",
                f"{(row.cost[-1] / row.hindsight).mean():.3f}", f"{fails:.0%}",
            ]
        )  # fmt: skip
    heads = (
        "model", "baseline, $", *steps, "quartiles of dynamic", f"at {FLAT_USD:g} $ a move", "moves",
        "÷ hindsight", "dearer than multi_cloud",
    )  # fmt: skip
    gain = [
        [
            model,
            *(
                f"{(at_home[model, days].cost[-2] / at_home[model, days].cost[-1]).mean():.3f}"
                for days in DAYS
            ),
        ]
        for model in (*MODELS, MODELLED)
    ]
    others = {(row.model, row.days): row for row in found if row.home == HOMES[1]}
    more = [
        [model, *(f"{rows[model, days].saving[-1].mean():.2f}" for rows, days in
                  ((at_home, 8.0), (others, 4.0), (others, 8.0)))]
        for model in (*MODELS, MODELLED)
    ]  # fmt: skip
    sweep = [
        [
            row.model,
            *(
                f"{row.cost[0].mean() / row.swept[hours][0]:.2f}, {row.swept[hours][1]:.1f}"
                for hours in SWEEP_H
            ),
        ]
        for row in four
    ]
    daily = max(1 - float((row.cost[-1] / row.cost[-2]).mean()) for row in found)
    online = (np.diff([row.saving.mean(axis=1) for row in four], axis=1) >= -1e-9).all()
    return [
        "## Across clouds, where prices move",
        "Every step of the ladder saves at least as much as the one before it, in the mean of every model: "
        f"{'yes' if online else 'no'}. Moving daily saves {daily:.1%} at most beyond multi_cloud, because one "
        "region (us-east-2) is the cheapest on most days. Savings over the baseline for 4 days of a V100, at "
        "home in us-east-1. In brackets those of the source (M10), which had other prices (2020) and three clouds with K80, P100 "
        f"and V100. Means of {STARTS} starts.",
        table(heads, lines),
        "The same at 8 days, and at home in us-west-2 at 4 and 8 days, dynamic only (M11):",
        table(("model", "8 days", "us-west-2, 4 days", "us-west-2, 8 days"), more),
        "Cost of multi_cloud over that of dynamic, by days of work (M12; the source: 1 to 1.16 for A3C, 1.02 "
        "to 1.41 for Transformer):",
        table(("model", *(f"{days:g} days" for days in DAYS)), gain),
        "Saving and moves by the time between two choices, 4 days of work:",
        table(("model", *(f"{hours:g} h" for hours in SWEEP_H)), sweep),
        "Prices of GPUs in the United States from the shipped catalogue, 2024-01-24 to 2024-05-14: one price "
        "a day and region. Of the GPUs that Gavel measured only AWS's K80 and V100 have spot prices then, so "
        "`multi_cloud` is other regions for those rows. The last row has every GPU of AWS and Google Cloud, "
        "with modelled speeds. Moves and restarts are free, as in the source, unless the column says "
        "otherwise. The source's own price logs, and the speeds of Recommendation and ResNet-50, are not in "
        "the data: these rows show its shape, not its figures.",
    ]


def _known(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.2f}"
