from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.shared_cluster import Terms, Use, fifo_waits, least_discount, least_machines, play

TERMS = Terms(machines=4, units=2, price_usd_h=1.0, discount=0.4, horizon_s=40_000.0)


def drawn(seed: int, users: int = 5, jobs: int = 60) -> Use:
    random = np.random.default_rng(seed)
    user = np.concatenate((np.arange(users), random.integers(0, users, jobs - users)))
    return Use(
        random.permutation(user),
        np.sort(random.uniform(0, 40_000, jobs)),
        random.exponential(3000, jobs) + 1,
        random.choice([1, 1, 2, 4], jobs),
    )


terms = st.builds(
    Terms,
    machines=st.integers(2, 12),
    units=st.just(2),
    price_usd_h=st.floats(0.1, 5.0),
    discount=st.floats(0.0, 0.9),
    horizon_s=st.just(40_000.0),
    pricing=st.sampled_from(["usage", "flat"]),
    tolerance=st.floats(0.0, 20.0),
    wait_usd_h=st.sampled_from([0.0, 0.1]),
)
seeds = st.integers(0, 2**31)


def test_the_head_of_the_queue_blocks_those_behind_it() -> None:
    # Job 0 has 1 of 2 units until 10. Job 1 wants 2 and waits 9. Job 2 would fit, and waits behind job 1
    # until 15.
    waits = fifo_waits(np.array([0.0, 1, 2]), np.array([10.0, 5, 1]), np.array([1, 2, 1]), 2)
    assert waits.tolist() == [0.0, 9.0, 13.0]
    assert fifo_waits(np.array([0.0, 0]), np.array([1.0, 1]), np.array([3, 1]), 2).tolist() == [np.inf, 0.0]
    # Job 0's units are both free from 10 on.
    assert fifo_waits(np.arange(3.0), np.array([10.0, 99, 1]), np.array([2, 1, 1]), 2).tolist() == [0, 9, 8]


@given(seeds, terms)
@settings(max_examples=60, deadline=None)
def test_members_pay_the_whole_bill_and_only_ever_leave(seed: int, asked: Terms) -> None:
    use = drawn(seed)
    rounds = play(use, asked)
    assert 1 <= len(rounds) <= use.users
    for before, after in pairwise(rounds):
        assert (after.members == (before.members & ~before.leave)).all()
    for one in rounds:
        assert one.paid_usd.sum() == pytest.approx(asked.bill_usd)
        assert not one.paid_usd[~one.members].any()
        assert one.price_usd_h * (use.hours()[one.members].sum()) == pytest.approx(asked.bill_usd)
    assert not rounds[-1].leave.any() or (rounds[-1].leave == rounds[-1].members).all()


@given(seeds, st.integers(4, 12))
@settings(max_examples=60, deadline=None)
def test_more_machines_never_make_a_job_wait_longer(seed: int, room: int) -> None:
    use = drawn(seed)
    few, more = (fifo_waits(use.submit_s, use.run_s, use.units, units) for units in (room, room + 1))
    assert (more <= few + 1e-6).all()


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_who_waits_without_end_for_nothing_never_leaves(seed: int) -> None:
    asked = replace(TERMS, discount=1.0, tolerance=np.inf)
    assert not play(drawn(seed), asked)[0].leave.any()


@given(seeds, terms)
@settings(max_examples=40, deadline=None)
def test_the_names_of_the_users_do_not_matter(seed: int, asked: Terms) -> None:
    use = drawn(seed)
    names = np.random.default_rng(seed).permutation(use.users)
    other = replace(use, user=names[use.user])
    for one, two in zip(play(use, asked), play(other, asked), strict=True):
        assert (one.members == two.members[names]).all()
        assert one.paid_usd == pytest.approx(two.paid_usd[names])


def test_users_who_are_alike_pay_the_same_under_both_prices() -> None:
    user = np.tile(np.arange(3), 4)
    use = Use(user, np.arange(12.0), np.full(12, 3600.0), np.ones(12, np.int64))
    flat, usage = (play(use, replace(TERMS, pricing=pricing)) for pricing in ("flat", "usage"))
    assert flat[0].paid_usd == pytest.approx(usage[0].paid_usd)


def test_a_user_who_leaves_makes_it_dearer_for_the_others() -> None:
    # Users 0 and 1 use 8 and 2 of 16 unit-hours that cost 1 each: 16 USD. Flat, each pays 8; user 1 would
    # pay 4 elsewhere and leaves. User 0 then pays 16, which is what it costs elsewhere, and stays.
    use = Use(np.array([0, 1]), np.zeros(2), np.array([4, 2]) * 3600.0, np.array([2, 1]))
    asked = Terms(2, 2, 2.0, 0.5, 4 * 3600.0, pricing="flat")
    rounds = play(use, asked)
    assert [one.members.tolist() for one in rounds] == [[True, True], [True, False]]
    assert rounds[0].cheated.tolist() == [False, True]
    assert [one.price_usd_h for one in rounds] == pytest.approx([1.6, 2.0])
    assert [one.utilisation for one in rounds] == pytest.approx([10 / 16, 8 / 16])
    assert [one.alone_usd.tolist() for one in rounds] == [[16.0, 4.0], [16.0, 0.0]]


@given(seeds, terms)
@settings(max_examples=40, deadline=None)
def test_the_least_discount_and_the_fewest_machines_are_where_users_begin_to_leave(
    seed: int, asked: Terms
) -> None:
    use = drawn(seed)
    machines = least_machines(use, asked)
    assert machines is not None
    enough = replace(asked, machines=machines)
    assert not play(use, enough)[0].impatient.any()
    if machines > 1:
        assert play(use, replace(asked, machines=machines - 1))[0].impatient.any()
    least = least_discount(use, enough)
    if -1 < least < 1:
        assert not play(use, replace(enough, discount=least + 1e-6))[0].leave.any()
        assert play(use, replace(enough, discount=least - 1e-3))[0].cheated.any()
