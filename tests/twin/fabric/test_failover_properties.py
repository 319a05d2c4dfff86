"""Outages of arbitrary plans against a plain reading of the same rules, fault by fault."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.fabric import BfdTimers, FaultKind, PlannedFault
from tests.twin.fabric.conftest import CONTROL, reaches
from twin.fabric.failover import failover
from twin.fabric.model import ControlPlane, Delay, FastPath, Handling, Scheme, Stalls
from twin.fabric.steps import far_steps_s
from twin.fabric.topology import dual_tor

NOTHING, CARRIER_S, AGAIN_S = Delay(0.0, 0.0), 0.5, 3.0
CERTAIN = ControlPlane(
    carrier_s=Delay(CARRIER_S, CARRIER_S),
    hold_s=0.25,
    message_s=NOTHING,
    route_s=NOTHING,
    rule_s=NOTHING,
    session_up_s=Delay(AGAIN_S, AGAIN_S),
    stalls=Stalls(0.0, 1.0, 1.0),
)
"""Nothing left to chance, with a carrier lost for half a second before anybody knows."""

ports = st.builds(
    PlannedFault,
    kind=st.sampled_from([FaultKind.PORT, FaultKind.NIC]),
    at_s=st.integers(0, 40).map(lambda tenth: tenth / 4),
    down_s=st.one_of(st.integers(1, 20).map(lambda tenth: tenth / 4), st.just(np.inf)),
    host=st.integers(0, 2),
    uplink=st.integers(0, 1),
    silent=st.just(False),
)
switches = st.builds(replace, ports, kind=st.just(FaultKind.TOR), tor=st.integers(0, 1))
fabrics = st.sampled_from([dual_tor(3), dual_tor(3, spines=1), dual_tor(3, nics=2)])


def links(fabric, fault):
    if fault.kind is FaultKind.TOR:
        return list(map(tuple, np.argwhere(fabric.tor_of == fault.tor).tolist()))
    if fault.kind is FaultKind.NIC:
        same = fabric.nic_of[fault.host] == fabric.nic_of[fault.host, fault.uplink]
        return [(fault.host, uplink) for uplink in np.flatnonzero(same).tolist()]
    return [(fault.host, fault.uplink)]


def out_of_use(fabric, plan):
    """(link, from, until) of every fault, as long as nobody uses the link."""
    return [
        (link, fault.at_s, end_s + (AGAIN_S if end_s - fault.at_s > CARRIER_S else 0.0))
        for fault in plan
        for link in links(fabric, fault)
        for end_s in [dead_until(fabric, plan, fault, link)]
    ]


def dead_until(fabric, plan, fault, link):
    """When the link works again: faults of it that overlap follow one another."""
    end_s = fault.at_s + fault.down_s
    for other in sorted(plan, key=lambda other: other.at_s):
        if fault.at_s <= other.at_s < end_s and link in links(fabric, other):
            end_s = max(end_s, other.at_s + other.down_s)
    return end_s


def works_from(fabric, unused, source, destination, at_s):
    """(when, by which path) the pair is connected again at the earliest, no sooner than at_s."""
    moments = sorted({at_s, *(end for _, _, end in unused if end > at_s)})
    for moment in moments:
        dead = {link for link, begin, end in unused if begin <= moment < end}
        open_ = [
            (first, last)
            for first, last in np.argwhere(reaches(fabric, source, destination)).tolist()
            if not dead & {(source, first), (destination, last)}
        ]
        if open_:
            return moment, open_
    return np.inf, []


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(fabrics, st.lists(st.one_of(ports, switches), max_size=5))
def test_an_outage_ends_when_routing_finds_a_path_that_works_or_the_link_is_back(fabric, plan):
    outages = failover(fabric, plan, Handling(Scheme.THORN, CERTAIN, BfdTimers()), np.random.SeedSequence(0))
    unused = out_of_use(fabric, plan)
    for row, fault in enumerate(plan[index] for index in outages.fault.tolist()):
        source, destination = int(outages.source[row]), int(outages.destination[row])
        far = outages.direction[row] == 1
        link = (destination, int(outages.last_uplink[row])) if far else (source, int(outages.uplink[row]))
        repair_s = dead_until(fabric, plan, fault, link)
        # The host's kernel knows at once; far away two holds, or one at spines before a dead switch.
        waits_s = CERTAIN.hold_s * (far * (1 if fabric.spines and fault.kind is FaultKind.TOR else 2))
        installed_s = fault.at_s + CARRIER_S + waits_s
        works_s, _ = works_from(fabric, unused, source, destination, installed_s)
        if repair_s - fault.at_s <= CARRIER_S:
            expected = repair_s
        elif works_s == installed_s:
            expected = min(installed_s, repair_s)
        else:
            expected = works_s
        assert outages.end_s[row] == pytest.approx(expected)


@settings(max_examples=100, deadline=None)
@given(fabrics, st.lists(st.one_of(ports, switches), max_size=5), st.sampled_from(Scheme), st.booleans())
def test_steps_follow_each_other_and_every_gap_is_positive(fabric, plan, scheme, silent):
    plan = [replace(fault, silent=silent) for fault in plan]
    outages = failover(fabric, plan, Handling(scheme, CERTAIN, BfdTimers()), np.random.SeedSequence(0))
    assert (outages.gap_s > 0.0).all()
    assert (outages.begin_s <= outages.detected_s).all()
    assert (outages.detected_s <= outages.selected_s).all()
    assert (outages.selected_s <= outages.installed_s).all()
    assert not np.isnan(outages.end_s).any()


FAST = FastPath(late_s=Delay(0.002, 0.003), told_s=Delay(0.003, 0.005), route_s=Delay(0.001, 0.002))


def steps_of_one_tier(handling, known_s, told_s, random):
    """Return the steps towards a dead link as they were computed before there were racks."""
    control = handling.control
    selected = known_s + control.hold_s
    selected = selected + control.message_s.draw(len(known_s), random) + control.hold_s
    installed = selected + control.route_s.draw(len(known_s), random)
    if control.fast is None:
        return selected, installed
    told_s = told_s + control.fast.told_s.draw(len(known_s), random)
    fast = told_s + control.fast.route_s.draw(len(known_s), random)
    return np.where(fast < installed, told_s, selected), np.where(fast < installed, fast, installed)


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.sampled_from([None, FAST]))
def test_without_spines_every_step_is_to_the_bit_what_it_was(seed, count, fast):
    handling = Handling(Scheme.THORN, replace(CONTROL, fast=fast), BfdTimers())
    known_s, told_s = np.random.default_rng(seed).uniform(0.0, 1.0, (2, count))
    local = np.zeros(count, np.bool_)
    made = far_steps_s(handling, known_s, told_s, local, np.random.default_rng(seed))
    before = steps_of_one_tier(handling, known_s, told_s, np.random.default_rng(seed))
    assert [step.tobytes() for step in made] == [step.tobytes() for step in before]
