"""The Captain's rule: its arithmetic, and that every container is counted for itself."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.autothrottle_captain import Captain, CaptainRule
from control.allocator.model import Reason
from control.allocator.roster import Roster
from tests.control.allocator.fleets import application, join

RULE = CaptainRule(alpha=3.0, lowest=0.5, highest=0.9, window=10, history=50, margin=3.0)
TARGET = 0.06


class Driven:
    """Containers with quotas that follow the Captain at once."""

    def __init__(self, containers=1, rule=RULE, target=TARGET, quota=1.0):
        self.roster = Roster([application()])
        self.captain = Captain(self.roster, rule)
        self.roster.join(join([0] * containers))
        self.quota = np.full(containers, quota)
        self.target = np.full(containers, target)
        self.reasons = [[] for _ in range(containers)]

    def warm(self, usage):
        """Fills the usage history, as if the containers had used this much for long."""
        self.captain._usage.values[:] = usage
        return self

    def period(self, usage, throttled, who=None):
        """One period of the containers `who` (all), usage and throttled of each or of all alike."""
        slots = np.arange(len(self.quota)) if who is None else np.array(who, np.int64)
        usage = np.broadcast_to(np.array(usage, np.float64), slots.shape)
        throttled = np.broadcast_to(np.array(throttled, np.bool_), slots.shape)
        self.captain.observe(slots, throttled, usage)
        slots = self.captain.deciding(slots)
        wanted = self.captain.decide(slots, self.quota[slots], self.target[slots])
        self.quota[wanted.slots] = wanted.cores
        for slot, reason in zip(wanted.slots, wanted.reason, strict=True):
            self.reasons[slot].append(reason)
        return wanted

    def periods(self, usage, throttled):
        for used, was_throttled in zip(usage, throttled, strict=True):
            self.period(used, was_throttled)


def test_more_throttling_than_alpha_targets_raises_the_quota_by_the_excess():
    driven = Driven()
    driven.periods([1.0] * 10, [True] * 4 + [False] * 6)
    # r = 4 / 10; 1 · (1 + 0.4 − 3 · 0.06)
    assert driven.quota[0] == pytest.approx(1.22)
    assert driven.reasons[0] == [Reason.ABOVE_TARGET]


def test_nothing_is_decided_before_the_window_is_over():
    driven = Driven()
    driven.periods([1.0] * 9, [True] * 9)
    assert driven.quota[0] == 1.0
    driven.period(1.0, True)
    # r = 1; 1 · (1 + 1 − 0.18)
    assert driven.quota[0] == pytest.approx(1.82)


def test_throttling_between_the_target_and_alpha_targets_changes_nothing_while_the_quota_is_used():
    driven = Driven()
    # r = 0.1 ≤ 0.18, and the largest use is the quota
    for _ in range(8):
        driven.periods([1.0] * 10, [True] + [False] * 9)
    assert driven.quota[0] == 1.0


def test_a_steady_use_is_approached_by_at_most_half_a_quota_at_a_time():
    driven = Driven().warm(0.2)
    quotas = []
    for _ in range(5):
        driven.periods([0.2] * 10, [False] * 10)
        quotas.append(driven.quota[0])
    # no deviation: p = 0.2. max(0.5 · 1, 0.2), max(0.25, 0.2), max(0.125, 0.2), then 0.2 > 0.9 · 0.2: stays
    assert quotas == pytest.approx([0.5, 0.25, 0.2, 0.2, 0.2])
    assert driven.reasons[0] == [Reason.BELOW_TARGET] * 3


def test_the_margin_is_in_deviations_of_the_recent_use():
    driven = Driven().warm(0.2)
    usage = [0.2, 0.4] * 5
    driven.periods(usage, [False] * 10)
    # margin 3 + 0 − 0.06
    assert driven.quota[0] == pytest.approx(0.4 + 2.94 * statistics.stdev([0.2] * 40 + usage))


def test_the_history_of_a_container_that_has_just_started_is_filled_with_zeros():
    driven = Driven()
    driven.periods([0.3] * 10, [False] * 10)
    assert driven.quota[0] == pytest.approx(0.3 + 2.94 * statistics.stdev([0.0] * 40 + [0.3] * 10))


@pytest.mark.parametrize(("use", "after"), [(0.899, 0.899), (0.901, 1.0)])
def test_a_cut_of_less_than_a_tenth_is_not_made(use, after):
    driven = Driven().warm(use)
    driven.periods([use] * 10, [False] * 10)
    assert driven.quota[0] == pytest.approx(after)


def test_the_history_forgets_what_is_older_than_its_length():
    driven = Driven(rule=CaptainRule(3.0, 0.5, 0.9, window=10, history=20, margin=0.0))
    driven.periods([0.8] * 10 + [0.3] * 10, [False] * 20)
    assert driven.quota[0] == pytest.approx(0.8)
    driven.periods([0.3] * 10, [False] * 10)
    # twenty periods of 0.3: p = 0.3, but at most half
    assert driven.quota[0] == pytest.approx(0.4)


def test_a_cut_that_throttles_is_rolled_back_and_as_far_above_within_the_window():
    driven = Driven()
    driven.periods([0.2] * 10, [False] * 10)
    assert driven.quota[0] == 0.5
    driven.periods([0.5], [True])
    # 0.1 ≤ 0.18: not yet
    assert driven.quota[0] == 0.5
    driven.periods([0.5], [True])
    # 0.2 > 0.18: 1 + (1 − 0.5), after two periods
    assert driven.quota[0] == 1.5
    assert driven.reasons[0] == [Reason.BELOW_TARGET, Reason.ROLLED_BACK]


def test_a_roll_back_happens_once_and_widens_the_margin():
    driven = Driven()
    driven.periods([0.2] * 10, [False] * 10)
    driven.periods([0.5] * 2, [True] * 2)
    # The window goes on with its counts begun anew: 2 of 10 more are above 0.18, and raise at its end.
    driven.periods([1.5] * 8, [True] * 2 + [False] * 6)
    assert driven.quota[0] == pytest.approx(1.5 * (1 + 0.2 - 0.18))
    # 3 − 0.06 (first window) + 0.2 − 0.06 (roll-back) + 0.2 − 0.06 (second window)
    assert driven.captain.margin.values[0] == pytest.approx(3 - 0.06 + 0.14 + 0.14)


def test_a_roll_back_at_the_windows_end_is_followed_by_the_windows_decision():
    driven = Driven().warm(0.2)
    driven.periods([0.2] * 10, [False] * 10)
    driven.periods([0.5] * 10, [False] * 8 + [True] * 2)
    # Back to 1 + (1 − 0.5), then down again, as nothing was throttled at that quota.
    margin = 3 - 0.06 + (0.2 - 0.06) - 0.06
    assert driven.quota[0] == pytest.approx(0.5 + margin * statistics.stdev([0.2] * 40 + [0.5] * 10))
    assert driven.captain.margin.values[0] == pytest.approx(margin)


def test_a_cut_that_a_minimum_stopped_is_undone_as_far_as_it_went():
    driven = Driven(quota=0.01).warm(0.0)
    driven.periods([0.0] * 10, [False] * 10)
    driven.quota[0] = 0.01
    driven.periods([0.01] * 2, [True] * 2)
    assert driven.quota[0] == pytest.approx(0.01)


def test_a_cut_that_throttles_only_after_its_window_is_not_rolled_back():
    driven = Driven().warm(0.5)
    driven.periods([0.5] * 10, [False] * 10)
    driven.periods([0.5] * 10, [False] * 10)
    driven.periods([0.5] * 2, [True] * 2)
    assert driven.quota[0] == 0.5
    assert driven.reasons[0] == [Reason.BELOW_TARGET]


def test_the_margin_never_falls_below_none():
    driven = Driven(target=0.3)
    for _ in range(30):
        driven.periods([0.95] * 10, [False] * 10)
    assert driven.captain.margin.values[0] == 0.0


def test_a_target_of_none_raises_at_any_throttling():
    driven = Driven(target=0.0)
    driven.periods([1.0] * 10, [True] + [False] * 9)
    assert driven.quota[0] == pytest.approx(1.1)


def test_a_newcomer_in_a_departed_ones_slot_starts_anew():
    driven = Driven()
    driven.periods([1.0] * 9, [True] * 9)
    driven.roster.leave(driven.roster.living())
    driven.roster.join(join([0]))
    driven.period(0.2, False)
    assert driven.quota[0] == 1.0
    driven.periods([0.2] * 9, [False] * 9)
    assert driven.quota[0] == 0.5


class Alone:
    """The rule of one container, in plain Python, as the module's docstring states it."""

    def __init__(self, rule, target):
        self.rule, self.target = rule, target
        self.usage = [0.0] * rule.history
        self.margin, self.counted, self.throttled, self.lowered_from = rule.margin, 0, 0, None

    def period(self, quota, usage, throttled):
        rule = self.rule
        self.usage = [*self.usage[1:], float(np.float32(usage))]
        self.counted += 1
        self.throttled += throttled
        ratio = self.throttled / rule.window
        if self.lowered_from is not None and ratio > rule.alpha * self.target:
            quota, self.lowered_from = 2 * self.lowered_from - quota, None
            self.margin += ratio - self.target
            self.throttled, ratio = 0, 0.0
        return quota if self.counted < rule.window else self.window_ends(quota, ratio)

    def window_ends(self, quota, ratio):
        rule = self.rule
        self.counted, self.throttled, self.lowered_from = 0, 0, None
        self.margin = max(0.0, self.margin + ratio - self.target)
        if ratio > rule.alpha * self.target:
            return quota * (1 + ratio - rule.alpha * self.target)
        proposed = max(self.usage) + self.margin * statistics.stdev(self.usage)
        if proposed > rule.highest * quota:
            return quota
        self.lowered_from = quota
        return max(rule.lowest * quota, proposed)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    containers=st.integers(1, 12),
    window=st.integers(1, 6),
    history=st.integers(2, 12),
    target=st.sampled_from([0.0, 0.02, 0.1, 0.3]),
)
def test_the_rule_is_that_of_each_container_alone_whoever_reports_together(
    seed, containers, window, history, target
):
    rng = np.random.default_rng(seed)
    rule = CaptainRule(3.0, 0.5, 0.9, window, history, margin=1.0)
    driven = Driven(containers, rule, target)
    alone = [Alone(rule, target) for _ in range(containers)]
    expected = np.ones(containers)
    for _ in range(40):
        who = rng.permutation(np.flatnonzero(rng.random(containers) < 0.6))
        usage = expected[who] * rng.random(len(who))
        throttled = rng.random(len(who)) < 0.15
        driven.period(usage, throttled, who)
        for i, used, was in zip(who, usage, throttled, strict=True):
            expected[i] = alone[i].period(expected[i], used, was)
        np.testing.assert_allclose(driven.quota, expected, rtol=1e-9)
