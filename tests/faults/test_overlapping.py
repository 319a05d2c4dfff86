"""Plans of overlapping faults: the same from the same seed, and possible to carry out."""

from __future__ import annotations

import itertools
import random

from tests.faults.overlapping import KINDS, Plan, draw


def drawn(count: int) -> list[Plan]:
    return [draw(random.Random(f"plan-{number}")) for number in range(count)]


def test_the_same_seed_gives_the_same_plan() -> None:
    assert drawn(5) == drawn(5)


def test_faults_overlap_and_never_at_the_same_place() -> None:
    overlapping = 0
    for plan in drawn(100):
        for one, other in itertools.combinations(plan.faults, 2):
            together = one.begins_s <= other.ends_s and other.begins_s <= one.ends_s
            overlapping += together
            assert not (together and one.place == other.place), plan
    assert overlapping > 200


def test_every_kind_is_drawn() -> None:
    assert {fault.kind for plan in drawn(100) for fault in plan.faults} == set(KINDS)
