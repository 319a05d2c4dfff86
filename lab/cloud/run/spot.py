"""Policies for a deadline on spot machines, compared on a trace of availability.

For: `twinbed spot`. Not for: deciding (control/market), playing (twin/cloud/deadline.py), or reading the
trace's file (traces/readers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.market import make
from control.market.levels import Levels
from control.market.ports import CLOSE, DONE, REASONS, Flags, Policy, Real, Terms
from traces.readers import prices
from twin.cloud.deadline import Played, Windows, optimum_usd, play
from twinbed import ScenarioError
from twinbed.own import find

OPTIMUM = "optimum"
"""Name of the row that knows the whole trace in advance."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The results of one policy over all starts.

    policy: its name.
    cost_usd: mean cost of a job, US$.
    ratio: mean cost over that of the optimum.
    late: number of jobs that ended after the deadline.
    finish_h, spot_h, on_demand_h: mean time until the end, on spot and on demand, h; NaN for the optimum.
    starts: mean number of starts of machines; NaN for the optimum.
    reasons: share of the ticks by reason, the commonest first; "" for the optimum.
    """

    policy: str
    cost_usd: float
    ratio: float
    late: int
    finish_h: float
    spot_h: float
    on_demand_h: float
    starts: float
    reasons: str


MOST_DECISIONS = 20_000_000
"""Most decisions of all jobs, in all zones: some 30 B each."""


def windows(traces: Sequence[Path], terms: Terms, spot_usd_h: float, starts: int) -> Windows:
    """Return the market of `starts` jobs that begin evenly spread over the time that all traces have in
    common; a trace is a zone.

    Raises TraceError for a file that cannot be read, ScenarioError if the deadline is longer than this time.
    """
    series = [Levels(*prices.availability(path)) for path in traces]
    begin_s = max(float(zone.t_s[0]) for zone in series)
    end_s = min(float(zone.t_s[-1]) for zone in series)
    ticks = terms.ticks + 1
    if ticks * starts * len(traces) > MOST_DECISIONS:
        raise ScenarioError(
            f"--tick {terms.tick_s:g}s: {ticks:,} decisions before the deadline, times {starts:,} jobs and "
            f"{len(traces)} zones, are more than {MOST_DECISIONS:,}; take a longer --tick or fewer --starts"
        )
    if end_s - begin_s < ticks * terms.tick_s:
        which = "the time that all traces have in common is" if len(traces) > 1 else f"{traces[0]}:"
        raise ScenarioError(
            f"{which} {max(end_s - begin_s, 0.0) / 3600:.1f} h long, and the deadline is after "
            f"{terms.deadline_s / 3600:g} h; give a shorter deadline or a longer trace (its last row ends it)"
        )
    zones = [zone.cut(begin_s, end_s).least(terms.tick_s) >= 1 for zone in series]
    known = zones[0].size
    first = np.unique(np.linspace(0, known - ticks, starts).astype(np.int64))
    market = np.stack(zones, axis=1)
    available: Flags = market[first[:, None] + np.arange(ticks)]
    return Windows(available, np.broadcast_to(spot_usd_h, available.shape))


def compare(
    policies: Sequence[str], terms: Terms, market: Windows, told: Callable[[str, float], None]
) -> list[Compared]:
    """Return the optimum, then every policy, the cheapest first. told: function called with a policy and its
    progress.

    Raises ScenarioError for an unknown policy, before any simulation.
    """
    makers = dict(_named(name, terms) for name in policies)
    best: Real = optimum_usd(terms, market)
    least = float(best.mean())
    rows = []
    for name, policy in makers.items():
        result = play(policy, terms, market, lambda share, name=name: told(name, share))  # type: ignore[misc]
        rows.append(_row(name, result, terms, least))
    nothing = float("nan")
    optimum = Compared(OPTIMUM, least, 1.0, 0, nothing, nothing, nothing, nothing, "")
    return [optimum, *sorted(rows, key=lambda row: row.cost_usd)]


def _named(text: str, terms: Terms) -> tuple[str, Policy]:
    """Return a policy's name in the table, and the policy, which may be a user's own."""
    mine = find(text, "spot_policies")
    return (text, make(text, terms)) if mine is None else (mine.label, mine.make(terms))


def _row(name: str, result: Played, terms: Terms, least: float) -> Compared:
    reason = result.reason[result.reason != DONE]
    count = np.bincount(reason, minlength=len(REASONS)) / max(reason.size, 1)
    common = [int(place) for place in np.argsort(-count, kind="stable")[:3] if count[place] > 0]
    cost = float(result.cost_usd.mean())
    return Compared(
        policy=name,
        cost_usd=cost,
        ratio=cost / least,
        late=int((result.finish_s > terms.deadline_s + CLOSE).sum()),
        finish_h=float(result.finish_s.mean()) / 3600,
        spot_h=float(result.spot_h.mean()),
        on_demand_h=float(result.on_demand_h.mean()),
        starts=float(result.starts.mean()),
        reasons="; ".join(f"{REASONS[place]} ({count[place]:.0%})" for place in common),
    )
