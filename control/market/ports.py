"""Input and output of a policy for a deadline on spot machines, in every tick.

For: the terms of the policies and of the backends. Not for: deciding. All arrays are over n jobs on the same
terms, so that thousands of jobs take one step together; a single job is n = 1. Sources: "Can't Be Late" (Wu
et al., NSDI 2024) §3–4 for the setting; ticks are our reading of it.

Rules of a tick. The policy first sees which zones have a spot machine for the whole tick. A spot machine
whose zone has none is taken away. Then the policy chooses for the whole tick: nothing, on demand, or spot in
a zone. Every start spends `restart_s` without progress, which replaces the rest of an earlier start. A held
tick is paid whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twinbed import ScenarioError

Real = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]

IDLE, ON_DEMAND = -1, -2
"""Choices other than a zone's number, which is 0 or more."""

REASONS = (
    "done",
    "no whole tick to spare: on demand to the end",
    "spot until it is taken away",
    "spot is there",
    "behind the line: on demand",
    "on demand until two restarts ahead of the line",
    "ahead of the line: wait",
    "no spot: wait",
    "by the plan, waiting costs least",
    "by the plan, spot costs least",
    "by the plan, on demand costs least",
    "on demand throughout",
    "worth most: this zone",
    "worth most: on demand",
    "nothing is worth its price: wait",
    "no other place is worth a change",
    "no more money to spare: on demand",
)
"""Reasons of decisions; a decision holds positions in this table."""
(
    DONE, GUARD, STAY, TAKE, BEHIND, HOLD, AHEAD, WAIT, PLAN_WAIT, PLAN_SPOT, PLAN_ON_DEMAND,
    THROUGHOUT, WORTH_SPOT, WORTH_ON_DEMAND, WORTH_WAIT, WORTH_STAY, BOUND,
) = range(len(REASONS))  # fmt: skip
CLOSE = 1e-6
"""Difference up to which two times count as equal, s."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The job's needs and the market's terms.

    work_s: work of the job on one machine, s. deadline_s: time from the start by which the job must be done,
    s. restart_s: time that every start of a machine takes, s. tick_s: time between decisions, s.
    on_demand_usd_h: price on demand, US$/h. egress_usd: price of moving the checkpoint from one zone to
    another, US$, float64[zones, zones]; empty: free. probe_s: time of spot that a probe of a zone costs if it
    starts a machine, s.

    Raises ScenarioError for a value that is not positive, and for a deadline that even on-demand from the
    start misses.
    """

    work_s: float
    deadline_s: float
    restart_s: float
    tick_s: float
    on_demand_usd_h: float
    egress_usd: tuple[tuple[float, ...], ...] = ()
    probe_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("work_s", "deadline_s", "tick_s", "on_demand_usd_h"):
            if not 0 < getattr(self, name) < np.inf:
                raise ScenarioError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.restart_s < np.inf:
            raise ScenarioError(f"restart_s is {self.restart_s}; it must be 0 or more")
        if self.work_s + self.restart_s > self.deadline_s + CLOSE:
            raise ScenarioError(
                f"{self.work_s / 3600:g} h of work and a restart of {self.restart_s / 60:g} min do not fit "
                f"before {self.deadline_s / 3600:g} h; give more time"
            )

    @property
    def ticks(self) -> int:
        """Number of whole ticks before the deadline."""
        return int((self.deadline_s + CLOSE) // self.tick_s)

    def moving_usd(self, zones: int) -> Real:
        """Return the price of moving from one zone to another, US$, float64[zones, zones]."""
        return np.array(self.egress_usd) if self.egress_usd else np.zeros((zones, zones))

    def needed(self, left_s: Real) -> Real:
        """Return the number of ticks that on-demand needs for this much work after a start."""
        return np.ceil((left_s + self.restart_s - CLOSE) / self.tick_s)


@dataclass(frozen=True, slots=True)
class State:
    """The state at the start of a tick.

    tick: number of ticks since the start. available: whether a zone has a spot machine for this tick, bool[n,
    zones]. spot_usd_h: price of spot in this tick, US$/h, float64[n, zones]. held: place that each job still
    holds since the last tick: IDLE, ON_DEMAND or a zone, int64[n]. zone: the zone of its last spot machine, 0
    before the first, int64[n]. restart_left_s: rest of the last start, s, float64[n]. done_s: work done, s,
    float64[n].
    """

    tick: int
    available: Flags
    spot_usd_h: Real
    held: Whole
    zone: Whole
    restart_left_s: Real
    done_s: Real

    @property
    def cheapest(self) -> Whole:
        """The cheapest zone with spot, int64[n]; 0 if no zone has spot. Among equal zones, that of the last
        machine is taken, else the first.
        """
        price = np.where(self.available, self.spot_usd_h, np.inf)
        best = price.argmin(axis=1)
        rows = np.arange(best.size)
        same = self.available[rows, self.zone] & (price[rows, self.zone] <= price[rows, best])
        return np.where(same, self.zone, best)


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice of each job for this tick. choice: IDLE, ON_DEMAND or a zone, int64[n]. reason: int64[n].

    probes: zones in which a machine is started and stopped at once to see whether one is available, bool[n,
    zones]; None: no probe.
    """

    choice: Whole
    reason: Whole
    probes: Flags | None = None

    def probing_s(self, terms: Terms, state: State) -> Real:
        """Return the time of spot that probes cost, s, float64[n, zones]; 0 where no machine starts."""
        probes = np.zeros_like(state.available) if self.probes is None else self.probes
        return np.where(probes & state.available, terms.probe_s, 0.0)


class Policy(Protocol):
    """Decides once per tick for n jobs, and remembers what it saw of them."""

    def on_step(self, state: State) -> Decision:
        """Return the choices for this tick."""
        ...


def progress(terms: Terms, state: State, choice: Whole) -> tuple[Real, Real]:
    """Return the work done and the restart time left after a tick of this choice, s, float64[n] each."""
    start = (choice != state.held) & (choice != IDLE)
    left = np.where(start, terms.restart_s, np.where(choice == IDLE, 0.0, state.restart_left_s))
    worked = np.where(choice == IDLE, 0.0, np.maximum(terms.tick_s - left, 0.0))
    return state.done_s + worked, np.maximum(left - terms.tick_s, 0.0)


class Guard:
    """Keeps every policy from missing deadlines: with no whole tick to spare, a job runs on demand.

    It never misses a deadline. Let g be the tick, d the restart, and before a tick k the ticks left, c the
    work left and h what is left of the present restart. Claim: ⌈(c + d)/g⌉ ≤ k, or the job holds on-demand
    and ⌈(c + h)/g⌉ ≤ k. If the claim does not hold at the first tick, the job runs on demand from start to
    end, and Terms has checked that this is in time. If ⌈(c + d)/g⌉ < k, no choice increases c, so the claim
    holds with k − 1. Otherwise the job is put on demand. If it held on-demand, c + h falls by g. If not, then
    ⌈(c + d)/g⌉ = k, a start makes h = d, and c + h falls by g. On-demand machines are never taken away, so no
    work is left at k = 0.

    spare: whole ticks that are kept beyond what is needed.
    """

    def __init__(self, terms: Terms, spare: int = 0) -> None:
        self.terms, self.spare = terms, spare

    def keep(self, state: State, wanted: Decision) -> Decision:
        """Return the decision, with on-demand where no tick is to spare, and IDLE where the job has ended."""
        terms = self.terms
        left_s = terms.work_s - state.done_s
        over = left_s <= CLOSE
        forced = terms.needed(left_s) >= terms.ticks - state.tick - self.spare
        choice = np.where(over, IDLE, np.where(forced, ON_DEMAND, wanted.choice))
        reason = np.where(over, DONE, np.where(forced, GUARD, wanted.reason))
        probes = None if wanted.probes is None else wanted.probes & ~over[:, None]
        return Decision(choice, reason, probes)
