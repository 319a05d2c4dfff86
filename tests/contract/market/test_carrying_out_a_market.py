"""What every backend does with the decisions of a policy for spot machines, simulated or really trained.

The cases assert order and books, not times: the machine under the real job may be busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from control.market import make
from control.market.course import REVOKED, STATES, Market, Outcome
from control.market.ports import IDLE, ON_DEMAND, TAKE, Decision, State
from tests.contract.market.market_backends import TERMS, TIMING, Backend, market
from twinbed import ScenarioError

POLICIES = ("planned", "uniform-progress", "greedy", "sky-nomad", "available-progress")
"""Policies that take the spot machine, and so lose it."""
ALWAYS, NEVER = ((0.0, 1.0),), ((0.0, 0.0),)
TAKEN = ((0.0, 1.0), (25.0, 0.0))
"""A zone whose machines go after 25 s, between two ticks."""


@dataclass
class Scripted:
    """A policy that chooses these places in turn, one per tick, and then keeps the last one."""

    places: tuple[int, ...]
    seen: list[State] = field(default_factory=list)
    probes: dict[int, list[bool]] = field(default_factory=dict)

    def on_step(self, state: State) -> Decision:
        self.seen.append(state)
        place = self.places[min(state.tick, len(self.places) - 1)]
        probes = np.array([self.probes[state.tick]]) if state.tick in self.probes else None
        return Decision(np.array([place]), np.array([TAKE]), probes)


def check_books(offered: Market, done: Outcome) -> None:
    assert np.isfinite(done.finish_s)
    edges = [(span.begin_s, span.end_s) for span in done.spans]
    assert edges[0][0] == 0
    assert edges[-1][1] == pytest.approx(done.finish_s)
    assert [begin for begin, _ in edges[1:]] == [end for _, end in edges[:-1]]
    assert {span.state for span in done.spans} <= set(STATES)
    for span in done.spans:
        assert (span.place == IDLE) == (span.state == "waiting")
    spot_s, on_demand_s = (done.in_state_s(*STATES[1:], spot=spot) for spot in (True, False))
    assert done.spot_usd == pytest.approx(0.3 * spot_s * offered.machines, abs=0.1)
    assert done.on_demand_usd == pytest.approx(on_demand_s * offered.machines, abs=0.1)
    assert done.move_usd == done.regions * offered.move_usd


# A backend sees of a policy only its decisions. Those of these two have all forms: with probes and without.
@pytest.mark.parametrize(
    ("market_backend", "policy"),
    [
        *(("twin", policy) for policy in POLICIES),
        *(pytest.param("real", policy, marks=pytest.mark.slow) for policy in ("planned", "sky-nomad")),
    ],
    indirect=["market_backend"],
)
def test_the_books_of_every_policy_are_right(market_backend: Backend, policy: str) -> None:
    offered = market(TAKEN)
    done = market_backend.run(offered, make(policy, TERMS))
    check_books(offered, done)
    assert done.revocations == 1


def test_without_spot_a_greedy_job_waits_and_then_pays_on_demand(market_backend: Backend) -> None:
    done = market_backend.run(market(NEVER), make("greedy", TERMS))
    check_books(market(NEVER), done)
    assert done.spot_usd == 0
    assert done.starts == 1
    first = next(span.begin_s for span in done.spans if span.state == "starting")
    assert all(span.end_s <= first for span in done.spans if span.state == "waiting")
    assert done.finish_s > TERMS.deadline_s / 2


def test_who_saves_at_the_notice_loses_nothing(market_backend: Backend) -> None:
    policy = Scripted((*[0] * 6, ON_DEMAND))
    done = market_backend.run(market(TAKEN), policy)
    check_books(market(TAKEN), done)
    assert [what for _, what, _ in done.events] == ["notice"]
    # On a busy machine the policy decides again while the job still saves.
    leaving = [span.reason for span in done.spans if (span.place, span.state) == (0, "leaving")]
    assert leaving[0] == REVOKED
    assert REVOKED not in {span.reason for span in done.spans if span.state in ("starting", "working")}
    assert done.lost_s == 0


def test_a_save_that_takes_longer_than_the_notice_is_lost(market_backend: Backend) -> None:
    policy = Scripted((*[0] * 6, ON_DEMAND))
    done = market_backend.run(market(TAKEN, notice_s=1.0), policy, replace(TIMING, stop_s=3.0))
    check_books(market(TAKEN), done)
    assert [what for _, what, _ in done.events] == ["notice", "lost"]
    assert 0 < done.lost_s <= TIMING.every_s + 0.5


def test_who_does_not_save_loses_the_work_since_the_last_save(market_backend: Backend) -> None:
    policy = Scripted((*[0] * 7, ON_DEMAND))
    # The notice comes long after a tick, at which a busy machine may ask the policy late.
    offered = market(((0.0, 1.0), (26.0, 0.0)), notice_s=0.5)
    # The real start fits into the 14 s. The job then works until 26 s, and saves at 7 s of work.
    done = market_backend.run(offered, policy, replace(TIMING, saves=False, start_s=14.0))
    check_books(offered, done)
    assert [what for _, what, _ in done.events] == ["notice", "lost"]
    assert 0 < done.lost_s <= TIMING.every_s + 0.5
    lost_at_s = done.events[-1][0]
    after = next(span for span in done.spans if span.begin_s >= lost_at_s)
    assert after.state == "waiting", "nobody chooses before the next tick"
    assert done.in_state_s("working") >= TERMS.work_s - done.starts * market_backend.ahead_s


def test_a_policy_is_told_saved_work_on_spot_and_all_of_it_on_demand(market_backend: Backend) -> None:
    policy = Scripted((*[0] * 6, ON_DEMAND))
    market_backend.run(market(ALWAYS), policy)
    on_spot = [float(state.done_s[0]) for state in policy.seen if state.held[0] == 0]
    assert all(done_s % TIMING.every_s == pytest.approx(0, abs=0.02) for done_s in on_spot)
    told = [float(state.done_s[0]) for state in policy.seen]
    assert told == sorted(told)
    assert max(told) > TIMING.every_s


def test_a_move_to_another_region_is_paid_and_goes_on_from_the_checkpoint(market_backend: Backend) -> None:
    offered = market(ALWAYS, ALWAYS)
    policy = Scripted((*[0] * 5, 1))
    done = market_backend.run(offered, policy, replace(TIMING, move_s=2.0))
    check_books(offered, done)
    assert (done.starts, done.moves, done.regions) == (2, 1, 1)
    second = [span for span in done.spans if span.place == 1 and span.state == "starting"]
    assert sum(span.end_s - span.begin_s for span in second) >= 2.0
    told = [float(state.done_s[0]) for state in policy.seen]
    assert told == sorted(told), "it goes on where it was"
    assert done.lost_s == 0


def test_a_slower_machine_takes_longer(market_backend: Backend) -> None:
    fast, slow = (market_backend.run(market(ALWAYS, speeds=(speed,)), Scripted((0,))) for speed in (2.0, 0.5))
    assert slow.in_state_s("working") > fast.in_state_s("working")


def test_a_probe_is_paid_where_it_finds_a_machine(market_backend: Backend) -> None:
    policy = Scripted((ON_DEMAND,), probes={0: [True, True], 2: [True, False]})
    done = market_backend.run(market(ALWAYS, NEVER), policy)
    assert done.probes_usd == pytest.approx(2 * 0.3 * TERMS.probe_s)
    assert done.cost_usd == pytest.approx(done.on_demand_usd + done.probes_usd)


def test_spot_that_is_not_there_is_refused(market_backend: Backend) -> None:
    with pytest.raises(ScenarioError, match="policy Scripted took spot where there is none, in tick 0"):
        market_backend.run(market(NEVER), Scripted((0,)))


def test_zones_under_notice_offer_nothing(market_backend: Backend) -> None:
    policy = Scripted((*[IDLE] * 7, ON_DEMAND))
    market_backend.run(market(TAKEN, notice_s=6.0), policy)
    there = {state.tick: bool(state.available[0, 0]) for state in policy.seen}
    assert all(offered == (tick <= 4) for tick, offered in there.items())
    assert {True, False} == set(there.values())
