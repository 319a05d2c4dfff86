"""Plays the deadlines of "Can't Be Late" (Wu et al., NSDI 2024) on its public traces, beside its figures.

For: a part of `python -m studies market`, M1 to M4. Not for: deciding (control/market) or playing
(twin/cloud/deadline.py). A trace is a file of SkyPilot's spot traces (`spot_availability`), named
`KIND_NODESnode_CLOUD_DATE_ZONE_DEVICE.csv`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from control.market import make
from control.market.levels import Levels
from control.market.ports import Flags, Policy, Real, Terms
from studies.harness import table
from studies.market.slices import TimeSliced
from traces.readers import prices
from twin.cloud.deadline import Windows, optimum_usd, play

ON_DEMAND_USD_H, SPOT_USD_H = 3.06, 0.9731
TICK_S = 600.0
STARTS = 300
"""Starts of a job in each trace, evenly spread; the source has 300, too."""
RESTARTS_H = (0.05, 0.2)
POLICIES = {"greedy": "greedy", "Uniform Progress": "uniform-progress", "ours": "planned"}
OPTIMUM = "optimum"
SOURCE_H = {"greedy": (30.8, 17.2), "Uniform Progress": (25.1, 22.9), OPTIMUM: (20.7, 27.4)}
"""The source's hours on demand and on spot (M1)."""
SOURCE_GAP = -0.57
"""The source's change of the mean gap to the optimum from greedy to Uniform Progress (M2)."""
REAL_H, REAL_RESTART_H, REAL = 72.0, 0.3, {84.0: 138.2 / 233.5, 100.0: 122.0 / 233.5}
"""Work and restart of the source's training on a V100, h; its cost over on demand by the deadline, h (M3)."""
BIO = (51.9 / 140.5, 22.8 / 140.5)
"""Cost over on demand of the source's 22.5 h of bioinformatics with 24 h and with 28 h (M3)."""
SLICES = (2, 4, 8, 16, 32)
"""Numbers of equal time slices that are compared."""
SLICED_H, SOURCE_SLICED = 52.0, "33 % to 62 %"
"""A tight deadline, h, and how much more than greedy time slices save in the source (M2)."""
GANG_STARTS = 30
"""Starts of a job of several machines in each trace."""
SOURCE_GANG = 0.94
"""The source's least share of time in which all or none of 4 or 16 machines are there (M4)."""
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Spent:
    """The result of a policy on all traces: hours on demand and on spot, mean and 75th percentile of the
    cost, US$."""

    on_demand_h: float
    spot_h: float
    mean_usd: float
    p75_usd: float


def trace(path: Path) -> Flags:
    """Return for every tick whether all machines of a trace are there throughout."""
    t_s, machines, nodes = _machines(path)
    return Levels(t_s, machines).least(TICK_S) >= nodes


def _machines(path: Path) -> tuple[Real, Real, float]:
    """Return a trace's times, s, and machines from each time on; and the number of machines asked for."""
    t_s, machines = prices.availability(path)
    return t_s, machines, float(path.name.split("_")[1].removesuffix("node"))


def windows(there: Flags, ticks: int, starts: int) -> Windows:
    """Return the windows of a trace that begin at evenly spread ticks."""
    first = np.linspace(0, there.size - ticks, starts).astype(int)
    available = np.array([there[tick : tick + ticks] for tick in first])[:, :, None]
    return Windows(available, np.full(available.shape, SPOT_USD_H))


def optimum(terms: Terms, market: Windows) -> tuple[Real, Real, Real]:
    """Return the optimum's hours on demand and on spot, and its cost, US$, float64[n] each.

    A price of on demand that is a little higher changes the cost by the hours on demand.
    """
    little = 1e-4
    dearer = replace(terms, on_demand_usd_h=terms.on_demand_usd_h + little)
    usd = optimum_usd(terms, market)
    on_demand_h = (optimum_usd(dearer, market) - usd) / little
    return on_demand_h, (usd - on_demand_h * terms.on_demand_usd_h) / SPOT_USD_H, usd


def spent(paths: Sequence[Path], terms: Terms, starts: int = STARTS) -> dict[str, Spent]:
    """Return the mean hours and cost of each policy and the optimum. Each trace has the same weight."""
    made: dict[str, list[tuple[Real, Real, Real]]] = {name: [] for name in (*POLICIES, OPTIMUM)}
    for path in paths:
        market = windows(trace(path), terms.ticks, starts)
        for name, policy in POLICIES.items():
            result = play(make(policy, terms), terms, market)
            made[name].append((result.on_demand_h, result.spot_h, result.cost_usd))
        made[OPTIMUM].append(optimum(terms, market))
    return {name: _spent(np.array(rows)) for name, rows in made.items()}


def _spent(rows: Real) -> Spent:
    """Return the result of a policy. rows: float64[traces, 3, starts]."""
    on_demand_h, spot_h, usd = rows.mean(axis=(0, 2)).tolist()
    return Spent(on_demand_h, spot_h, usd, float(np.percentile(rows[:, 2], 75, axis=1).mean()))


def parts(folder: Path, check: Callable[[], None]) -> list[str]:
    """Return the part of the page. folder: the traces. check: called between two questions."""
    one = sorted(folder.glob("availability_1node_aws_10-26-2022_*.csv"))
    restarts, held = [f"restart {60 * hours:g} min" for hours in RESTARTS_H], []
    for restart_h in RESTARTS_H:
        held.append(spent(one, _terms(48.0, 60.0, restart_h)))
        check()
    v100 = sorted(folder.glob("availability_1node_aws_*_v100_1.csv"))
    trained = []
    for deadline_h in REAL:
        terms = _terms(REAL_H, deadline_h, REAL_RESTART_H)
        trained.append([spent([path], terms, 30) for path in v100])
        check()
    slices = []
    for name, restart_h in zip(restarts, RESTARTS_H, strict=True):
        more = sliced(one, _terms(48.0, SLICED_H, restart_h))
        slices.append([name, *(f"{ratio - 1:+.0%}" for ratio in more)])
        check()
    gangs = [path for path in sorted(folder.glob("*node_*.csv")) if "_1node_" not in path.name]
    gains = []
    for path, restart_h in product(gangs, RESTARTS_H):
        saved = mixed(path, _terms(48.0, 60.0, restart_h), GANG_STARTS)
        gains.append([_named(path), f"{60 * restart_h:g} min", *(f"{share:+.1%}" for share in saved)])
        check()
    spans = [
        [name, _hours(SOURCE_H.get(name, ())), *(_hours((s[name].on_demand_h, s[name].spot_h)) for s in held)]
        for name in (*POLICIES, OPTIMUM)
    ]
    gaps = [f"{_gap(found, 'mean_usd'):+.0%} and {_gap(found, 'p75_usd'):+.0%}" for found in held]
    shown = ("Uniform Progress", "ours", OPTIMUM)
    costs = [
        [
            f"{hours:g} h",
            f"{source:.2f}",
            *(_range([each[name].mean_usd for each in found]) for name in shown),
        ]
        for (hours, source), found in zip(REAL.items(), trained, strict=True)
    ]
    together = [f"{_named(path)} {whole(path):.0%}" for path in gangs]
    return [
        '## The figures of "Can\'t Be Late"',
        f"M1: a job of 48 h with 60 h of time starts {STARTS} times in each of {len(one)} traces of 2022. "
        "The source does not say how long a restart took in this figure; its study has restarts of 3 and 12 "
        "min. Its hours seem to leave restarts out, and ours count them.",
        table(("policy", "source: on demand, spot (h)", *restarts), spans),
        "M2: from greedy to Uniform Progress the gap to the optimum changes by "
        f"{SOURCE_GAP:.0%} in the source's mean, and by about half in its 75th percentile. Here: "
        + "; ".join(map(" ".join, zip(restarts, gaps, strict=True)))
        + ".",
        f"Time slices cut work and time into equal parts and play greedy in each. With {SLICED_H:g} h for "
        f"the 48 h they save {SOURCE_SLICED} more over on demand than greedy in the source, which does not "
        "say with how many slices. More than greedy here, by number of slices:",
        table(("slices", *map(str, SLICES)), slices),
        f"M3: training of {REAL_H:g} h on one V100, cost over on demand. The source ran it once with each "
        f"deadline. Here are the mean and range of {len(v100)} traces, with the spot price of 2022. "
        f"{bioinformatics(folder)} Its analytics ran on a machine without traces.",
        table(("deadline", "source", *shown), costs),
        f"M4: all machines or none are there in at least {SOURCE_GANG:.0%} of the time in the source, for 4 "
        f"and 16 machines. Here: {'; '.join(together)}. Knowing each machine gains at most 1 % there. Here a "
        f"job of 48 h with 60 h of time starts {GANG_STARTS} times in each trace, and a fleet may mix spot "
        "and on demand. The table shows what that saves of the cost of all or none: for the optimum if the "
        "mix changes for free, which bounds what any policy can gain; for the optimum if every change "
        "restarts the whole job; and for Uniform Progress with these restarts, which takes every spot "
        "machine that it sees. The traces count machines without naming them, and the source's rule for a "
        "mix is not known here.",
        table(
            ("trace", "restart", "optimum, free changes", "optimum, restarts", "Uniform Progress, restarts"),
            gains,
            left=2,
        ),
    ]


def _terms(work_h: float, deadline_h: float, restart_h: float) -> Terms:
    return Terms(work_h * _HOUR_S, deadline_h * _HOUR_S, restart_h * _HOUR_S, TICK_S, ON_DEMAND_USD_H)


def sliced(paths: Sequence[Path], terms: Terms, starts: int = STARTS) -> list[float]:
    """Return the savings over on demand by number of slices, relative to those of greedy."""
    markets = [windows(trace(path), terms.ticks, starts) for path in paths]
    alone_usd = float(terms.needed(np.array(terms.work_s))) * terms.on_demand_usd_h * terms.tick_s / _HOUR_S

    def saved_usd(policy: Callable[[], Policy]) -> float:
        return float(np.mean([alone_usd - play(policy(), terms, market).cost_usd for market in markets]))

    greedy_usd = saved_usd(partial(make, "greedy", terms))
    return [saved_usd(partial(TimeSliced, terms, number)) / greedy_usd for number in SLICES]


def mixed(path: Path, terms: Terms, starts: int) -> list[float]:
    """Return the saving of a fleet that mixes spot and on demand, as a share of the cost of all-or-none.

    The first is the optimum if a change of the mix is free, which is the most that knowing each machine can
    gain; the second is the optimum if every change restarts the job; the third is Uniform Progress with these
    restarts. "Zone" j − 1 is j spot machines, and on demand for the rest.
    """
    t_s, machines, nodes = _machines(path)
    there = Levels(t_s, machines).least(TICK_S)
    counts = np.arange(1, int(nodes) + 1)
    usd_h = (counts * SPOT_USD_H + (nodes - counts) * ON_DEMAND_USD_H) / nodes
    first = np.linspace(0, there.size - terms.ticks, starts).astype(int)
    seen = np.minimum(np.array([there[tick : tick + terms.ticks] for tick in first]), nodes)[:, :, None]
    each = Windows(seen >= counts, np.broadcast_to(usd_h, (*seen.shape[:2], counts.size)))
    gang = Windows(each.available[:, :, -1:], each.spot_usd_h[:, :, -1:])
    free = Windows(np.ones(seen.shape, bool), np.interp(seen, [0, nodes], [ON_DEMAND_USD_H, SPOT_USD_H]))
    alone_usd, uniform = optimum_usd(terms, gang).mean(), "uniform-progress"
    up_usd, mix_usd = (play(make(uniform, terms), terms, market).cost_usd.mean() for market in (gang, each))
    gains = (1 - optimum_usd(terms, market).mean() / alone_usd for market in (free, each))
    return [*map(float, gains), float(1 - mix_usd / up_usd)]


def bioinformatics(folder: Path) -> str:
    """Return the traces' answer on the source's bioinformatics (M3)."""
    paths = sorted(folder.glob("preemption_1node_gcp_*_c3-88.csv"))
    if not paths:
        return "Its bioinformatics ran on a machine without traces."
    hours = min(_machines(path)[0][-1] for path in paths) / _HOUR_S
    kept = sum(bool(trace(path)[1:].all()) for path in paths)
    tight, loose = BIO
    return (
        f"The machine of its bioinformatics, which cost {tight:.2f} with 24 h and {loose:.2f} with 28 h for "
        f"22.5 h of work, is kept throughout in {kept} of {len(paths)} traces of {hours:.0f} h, where every "
        "policy holds spot from start to end and no deadline matters."
    )


def _named(path: Path) -> str:
    return path.stem.split("_", 1)[1]


def whole(path: Path) -> float:
    """Return the share of time in which all machines of a trace are there, or none."""
    t_s, machines, nodes = _machines(path)
    lasted = np.diff(t_s)
    alike = (machines[:-1] == 0) | (machines[:-1] >= nodes)
    return float(lasted[alike].sum() / lasted.sum())


def _gap(found: dict[str, Spent], figure: str) -> float:
    """Return the relative change of the gap to the optimum from greedy to Uniform Progress; NaN without a
    gap."""
    greedy, uniform, least = (
        getattr(found[name], figure) for name in ("greedy", "Uniform Progress", OPTIMUM)
    )
    return float((uniform - least) / (greedy - least) - 1) if greedy > least else math.nan


def _hours(hours: Sequence[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in hours) or "–"


def _range(usd: Sequence[float]) -> str:
    """Return costs over on demand: mean, least and most."""
    ratios = np.array(usd) / ((REAL_H + REAL_RESTART_H) * ON_DEMAND_USD_H)
    return f"{ratios.mean():.2f} ({ratios.min():.2f}–{ratios.max():.2f})"
