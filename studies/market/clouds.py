"""The ladder of cross-cloud strategies on public prices, with the speeds that Gavel's authors measured.

For: a part of `python -m studies market`. Not for: choosing (control/market/ladder.py) or playing
(twin/cloud/ladder.py). Source of the figures beside ours: "Training on a Dime" (DISPA 2020), M10 to M12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from control.market.ladder import LADDER, Job, offered
from lab.cloud.run.ladder import LadderQuestion, climb, collect, epoch_s
from studies.harness import dash, table
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
FLAT_USD, FLAT, LEAST, DAILY = 9.0, "9 $ a move", "hindsight", "dynamic 24 h"
MODELS = {
    "A3C": (1.32, 1.71, 3.10, 3.53),
    "CycleGAN": (1.00, 1.08, 1.54, 1.64),
    "LM batch 80": (1.00, 1.08, 1.70, 1.81),
    "Transformer batch 256": (1.00, 1.11, 2.36, 3.21),
}
"""The source's savings over the baseline at every later step, for 4 days of a V100 (M10). The speeds of its
other two models, Recommendation and ResNet-50, are not in the data."""
MODELLED = "modelled speeds, all GPUs"


def rows(folder: Path, check: Callable[..., None]) -> pd.DataFrame:
    """Return cost, US$, and number of moves by model, home, days of work, start and step. From home us-east-1
    there is every length of work, from us-west-2 only 4 and 8 days."""
    known = throughputs.read(folder / "gavel_isolated_throughput.csv", "gavel_simulation")
    prices, made, last_s = load().prices, [], epoch_s(LAST) - max(DAYS) * DAY_S
    starts = np.linspace(epoch_s(FIRST), last_s, STARTS).tolist()
    for model in (*MODELS, MODELLED):
        speeds = None
        if model != MODELLED:
            steps_s = known.steps_per_s[1][known.models.index(model), :, 0]
            by_type = dict(zip(known.types, steps_s.tolist(), strict=True))
            speeds = {GPUS[name]: value / by_type["v100"] for name, value in by_type.items() if value > 0}
        for home in HOMES:
            asked = LadderQuestion(("aws", home), GPUS["v100"], ("aws/us-", "gcp/us-"), "spot", speeds)
            market = collect(prices, asked)
            for days in DAYS if home == HOMES[0] else DAYS[-2:]:
                job = Job(days * DAY_S)
                for at_s in starts:
                    key = (model, home, days, at_s)
                    for row in climb(job, market, asked, at_s, [3600 * hours for hours in SWEEP_H]):
                        moves = row.ride.moves if row.ride else 0
                        made.append((*key, row.label, row.cost_usd, moves))
                    flat = climb(replace(job, move_usd=FLAT_USD), market, asked, at_s, [DAY_S])[-1]
                    allowed = offered("dynamic", market.offers, asked.home, asked.gpu, at_s)
                    least = hindsight_usd(job, market.offers, allowed, at_s, DAY_S)
                    made += [(*key, FLAT, flat.cost_usd, 0), (*key, LEAST, least, 0)]
                check()
    return pd.DataFrame(made, columns=["model", "home", "days", "start", "step", "usd", "moves"])


def parts(found: pd.DataFrame) -> list[str]:
    """Return the section of the page."""
    keys, models = ["model", "home", "days"], (*MODELS, MODELLED)
    usd: Any = found.pivot(index=[*keys, "start"], columns="step", values="usd")
    saving: Any = usd.rdiv(usd["baseline"], axis=0)
    mean: Any = saving.groupby(keys).mean()
    moves = found.groupby([*keys, "step"])["moves"].mean()
    beyond = (usd["multi_cloud"] / usd[DAILY]).groupby(keys).mean()
    over = (usd[DAILY] / usd[LEAST]).groupby(keys).mean()
    fails = (usd[DAILY] > usd["multi_cloud"] + 1e-9).groupby(keys).mean()
    steps = [*list(LADDER)[1:-1], DAILY]
    heads = (
        "model",
        "baseline, $",
        *steps,
        "quartiles",
        FLAT,
        "moves",
        "times the optimum in hindsight",
        "above multi_cloud",
    )
    lines = []
    for model in models:
        key = (model, HOMES[0], 4.0)
        known = MODELS.get(model, (np.nan,) * 4)
        cells = [
            f"{mean.loc[key, step]:.2f} ({dash(one, '.2f')})" for step, one in zip(steps, known, strict=True)
        ]
        low, high = saving.loc[key, DAILY].quantile([0.25, 0.75])
        rest = [
            f"{mean.loc[key, FLAT]:.2f}",
            f"{moves[(*key, DAILY)]:.1f}",
            f"{over[key]:.3f}",
            f"{fails[key]:.0%}",
        ]
        lines.append(
            [model, f"{usd.loc[key, 'baseline'].mean():.2f}", *cells, f"{low:.2f}–{high:.2f}", *rest]
        )
    places = [(HOMES[0], 8.0), (HOMES[1], 4.0), (HOMES[1], 8.0)]
    more = [[model, *(f"{mean.loc[(model, *place), DAILY]:.2f}" for place in places)] for model in models]
    gain = [[model, *(f"{beyond[model, HOMES[0], days]:.3f}" for days in DAYS)] for model in models]
    swept = [f"dynamic {hours:g} h" for hours in SWEEP_H]
    sweep = [
        [model, *(f"{mean.loc[(model, HOMES[0], 4.0), step]:.2f}, {moves[model, HOMES[0], 4.0, step]:.1f}"
                  for step in swept)]
        for model in models
    ]  # fmt: skip
    climbs = bool((np.diff(mean[["baseline", *steps]].to_numpy(), axis=1) >= -1e-9).all())
    return [
        "## Across clouds, where prices move",
        "In the mean of every model and length each step of the ladder saves at least as much as the one "
        f"before it: {'yes' if climbs else 'no'}. Moving daily saves {1 - 1 / beyond.max():.1%} at most "
        "beyond multi_cloud, because one region (us-east-2) is the cheapest on most days. The table shows "
        "savings over the baseline for 4 days of a V100, at home in us-east-1; the source's savings (M10) "
        "are in brackets. The source had other prices (2020) and three clouds with K80, P100 and V100. "
        f"Figures are means of {STARTS} starts, and quartiles of the daily choice.",
        table(heads, lines),
        "The daily choice at 8 days, and at home in us-west-2 at 4 and 8 days (M11):",
        table(("model", "8 days", "us-west-2, 4 days", "us-west-2, 8 days"), more),
        "Cost of multi_cloud over that of the daily choice, by days of work (M12; the source: 1 to 1.16 for "
        "A3C, 1.02 to 1.41 for Transformer):",
        table(("model", *(f"{days:g} d" for days in DAYS)), gain),
        "Saving and moves by the time between two choices, 4 days of work:",
        table(("model", *(f"{hours:g} h" for hours in SWEEP_H)), sweep),
        "Prices of GPUs in the United States from the shipped catalogue, 2024-01-24 to 2024-05-14: one price "
        "a day and region. Among the GPUs that Gavel measured, only AWS's K80 and V100 have spot prices in "
        "these days, so `multi_cloud` means other regions in those rows. The last row has every GPU of AWS "
        "and Google Cloud, with modelled speeds. Moves and restarts are free, as in the source, unless the "
        "column says otherwise. The data lack the source's own price logs and the speeds of Recommendation "
        "and ResNet-50, so these rows show its shape, not its figures.",
    ]
