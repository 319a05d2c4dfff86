"""Impairments: what is done to a link and when, and what a plan's do to a real fabric."""

from __future__ import annotations

import re
import time
from contextlib import nullcontext
from typing import Any

import pytest

from control.fabric import Direction
from lab.fabric.real.impairments import ImpairmentFile, impairment
from testbed.fabric import faults, impairments, leftovers
from testbed.fabric.links import run_in
from testbed.fabric.model import Fabric, Impairment, Plan
from testbed.fabric.ownership import processes_of
from testbed.fabric.plan import fabric_of
from testbed.fabric.up import load, up, wait_converged
from tests.testbed.fabric.test_fabric_up import WITHIN_S, until

SMALL = fabric_of(Plan(name="small"))


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record the changes of the link and the waits between them, in order."""
    done: list[Any] = []

    def note(verb: str) -> Any:
        return lambda _, fault, *rest: done.append((verb, fault.silent, *rest))

    for verb in ("inject", "lose", "degrade"):
        monkeypatch.setattr(faults, verb, note(verb))
    monkeypatch.setattr(faults, "mend", lambda *_: done.append("mended"))
    monkeypatch.setattr(faults, "clear", lambda *_: None)
    return done


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, [("inject", False)]),
        ({"silent": True}, [("inject", True)]),
        ({"loss": 0.1}, [("lose", True, 0.1)]),
        ({"loss": 0.1, "delay_s": 0.002}, [("lose", True, 0.1), ("degrade", True, 0.002, 0.0)]),
    ],
)
def test_a_link_is_broken_or_loses_or_delays(done: list[Any], keys: dict[str, Any], wanted: Any) -> None:
    impairments.begin(SMALL, Impairment(0, 1, **keys))
    assert done == wanted


def test_a_flapping_link_is_impaired_in_turns_until_its_end(done: list[Any]) -> None:
    impairments.play(SMALL, Impairment(0, 1, silent=True, flap_s=2.0, at_s=5.0, for_s=7.0), done.append)
    turn = [("inject", True), 2.0, "mended", 2.0]
    assert done == [5.0, *turn, ("inject", True), 2.0, "mended", 1.0, "mended"]


def test_an_interrupted_impairment_is_repaired(done: list[Any]) -> None:
    def wait(lasts_s: float) -> None:
        if lasts_s:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        impairments.play(SMALL, Impairment(0, 1, loss=0.5, for_s=1.0), wait)
    assert done == [("lose", True, 0.5), "mended"]


@pytest.mark.parametrize("per_cent", ["0.001%", "0.000001%", "0.015%", "33.333333%", "100%"])
def test_a_link_loses_the_share_that_was_asked_for(monkeypatch: pytest.MonkeyPatch, per_cent: str) -> None:
    """A fabric's usual losses are one packet in 100,000."""
    rules: list[str] = []
    monkeypatch.setattr(faults.nftables, "run", rules.append)
    monkeypatch.setattr(faults, "in_namespace", lambda _: nullcontext())
    monkeypatch.setattr(faults, "mend", lambda *_: None)
    asked = impairment(ImpairmentFile(link="h0:tor1", loss=per_cent))
    impairments.begin(SMALL, asked)
    drawn = re.search(r"numgen random mod (\d+) < (\d+) drop", rules[0])
    share = int(drawn[2]) / int(drawn[1]) if drawn else 1.0
    assert share == pytest.approx(float(per_cent[:-1]) / 100, rel=1e-9)


@pytest.mark.parametrize(("begins_s", "overlaps"), [(0.0, True), (9.9, True), (10.0, False)])
def test_impairments_of_one_link_overlap_only_in_time(begins_s: float, overlaps: bool) -> None:
    first = Impairment(0, 1, for_s=10.0)
    assert first.overlaps(Impairment(0, 1, at_s=begins_s)) == overlaps
    assert not first.overlaps(Impairment(0, 0, at_s=begins_s))


@pytest.mark.root
@pytest.mark.slow
def test_a_plans_impairments_take_effect_and_end_and_go_with_the_fabric(fabric_machine: None) -> None:
    lossy = Impairment(0, 0, loss=0.01)
    silent = Impairment(1, 1, silent=True, one_way=Direction.IN, at_s=2.0, for_s=2.0)
    plan = Plan(name="impaired", impairments=(lossy, silent, Impairment(0, 1, flap_s=1.0, at_s=600.0)))

    def state(fabric: Fabric) -> tuple[bool, bool]:
        """Return whether the lossy link loses, and whether the other one is silent."""
        rules = [run_in(tor.namespace, ("nft", "list", "ruleset")).stdout for tor in fabric.tors]
        return "numgen" in rules[0], 'elements = { "host1" }' in rules[1]

    try:
        fabric = up(plan, lasting=True)
        began_s = time.monotonic()
        assert load("impaired") == fabric
        assert state(fabric) == (True, False)
        until(lambda: state(fabric) == (True, True), "silence")
        assert time.monotonic() - began_s > 1.5
        until(lambda: state(fabric) == (True, False), "its end")
        impairments.end(fabric, lossy)
        wait_converged(fabric, WITHIN_S)
        assert processes_of("impaired")
    finally:
        leftovers.down("impaired")
    assert processes_of("impaired") == []
