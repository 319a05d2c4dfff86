"""Samples and intervals when containers end their periods together, and when they do so in groups."""

import numpy as np
import pytest

from control.allocator.autopilot import Autopilot, AutopilotSettings
from control.allocator.escra import Escra, EscraSettings
from control.allocator.model import Application, History, PeriodStats
from control.allocator.roster import Roster
from control.allocator.usage import Interval, UsageSamples, add_up
from control.allocator.vpa import Vpa
from control.allocator.vpa_settings import VpaSettings
from lab.check.driven_fleet import DrivenFleet
from tests.control.allocator.fleets import MIB, application, join

PERIOD_S = 0.1
SHOP = Application("shop", 40.0, 40 << 30)


def ends(periods, groups):
    """Ends of all groups' periods, in order."""
    return [PERIOD_S * (row + (group + 1) / groups) for row in range(periods) for group in range(groups)]


@pytest.mark.parametrize("groups", [1, 4, 7, 10])
@pytest.mark.parametrize("length_s", [0.1, 0.3, 1.0])
def test_an_interval_is_over_once_however_many_reports_there_are_in_a_period(groups, length_s):
    interval = Interval(length_s)
    over = [at_s for at_s in ends(120, groups) if interval.over(at_s, PERIOD_S)]
    # 12 s of time line, to one interval at either end
    assert abs(len(over) - 12.0 / length_s) <= 1
    assert np.diff(over)[1:] == pytest.approx(length_s, abs=PERIOD_S / groups + 1e-9)


@pytest.mark.parametrize("groups", [1, 4, 10])
def test_every_containers_sample_is_the_mean_of_its_own_periods(groups):
    roster = Roster([application()])
    samples, interval = UsageSamples(roster), Interval(1.0)
    ids = roster.join(join([0] * 20))
    rng = np.random.default_rng(groups)
    used: list[list[float]] = [[] for _ in range(20)]
    taken = 0
    for number, at_s in enumerate(ends(60, groups)):
        who = np.arange(number % groups, 20, groups)
        cores = rng.random(len(who))
        nothing = np.zeros(len(who))
        memory = np.full(len(who), number, np.int64)
        samples.add(PeriodStats(ids[who], nothing, nothing, nothing > 0, cores, memory, PERIOD_S, at_s))
        for slot, now in zip(who, cores, strict=True):
            used[slot].append(now)
        if interval.over(at_s, PERIOD_S):
            slots, mean, peak = samples.take()
            taken += 1
            assert slots.tolist() == list(range(20))
            assert mean == pytest.approx([np.mean(values) for values in used])
            assert (peak > number - groups).all()
            # The first interval begins with the first report, before the others' first periods are whole.
            assert all(len(cores) == 10 or (taken == 1 and len(cores) in (8, 9)) for cores in used)
            used = [[] for _ in range(20)]
    assert taken == 6


def spiky(rng, ids):
    return {id_: (rng.gamma(2.0, 0.2 + 0.05 * (id_ % 5)), int(300e6 + 2e8 * rng.random())) for id_ in ids}


@pytest.mark.slow
@pytest.mark.parametrize("groups", [4, 10])
@pytest.mark.parametrize(
    ("policy", "updates"),
    [
        (lambda: Autopilot(AutopilotSettings(update_interval_s=1.0)), 60),
        (lambda: Autopilot(AutopilotSettings(update_interval_s=1.0, recommender="moving_window")), 60),
        (lambda: Autopilot(AutopilotSettings(update_interval_s=10.0)), 6),
        (
            lambda: Vpa(
                VpaSettings(
                    sample_interval_s=1.0, update_interval_s=2.0, min_restart_interval_s=0.0, min_age_s=0.0
                )
            ),
            30,
        ),
    ],
    ids=["ml", "window", "ml10", "vpa"],
)
def test_recommenders_decide_once_per_interval_and_as_if_all_had_reported_together(policy, updates, groups):
    peaks = ([4.0] * 20, [1 << 30] * 20)
    together, apart = (DrivenFleet(policy(), [SHOP], [0] * 20, peaks=peaks) for _ in range(2))
    rng = np.random.default_rng(1)
    decided = 0
    for _ in range(600):
        usage = spiky(rng, together.ids)
        together.period(usage)
        decided += sum(not decision.empty for decision in apart.staggered(usage, groups))
    assert 1 <= decided <= updates + 1
    # The groups' samples are shifted by less than a period: near, not equal.
    assert sum(apart.cores.values()) == pytest.approx(sum(together.cores.values()), rel=0.1)
    assert sum(apart.bytes.values()) == pytest.approx(sum(together.bytes.values()), rel=0.1)


@pytest.mark.parametrize("groups", [4, 10])
def test_escra_moves_quotas_by_each_containers_own_window(groups):
    """Steady demand: whoever reports with whom, everyone ends with little unused and nobody throttled."""
    fleet = DrivenFleet(Escra(EscraSettings()), [SHOP], [0] * 20)
    demand = {id_: (0.2 + 0.1 * (at % 10), 100 * MIB) for at, id_ in enumerate(fleet.ids)}
    for _ in range(100):
        fleet.staggered(demand, groups)
    for id_, (cores, _) in demand.items():
        assert 0.0 <= fleet.cores[id_] - cores <= 0.2 + 1e-9
    before = dict(fleet.cores)
    raised = fleet.staggered(dict.fromkeys(fleet.ids[::groups], (8.0, 100 * MIB)), groups)
    assert [len(decision.cpu.ids) > 0 for decision in raised] == [True] + [False] * (groups - 1)
    assert all(fleet.cores[id_] == before[id_] for at, id_ in enumerate(fleet.ids) if at % groups)


@pytest.mark.parametrize("vacant", [False, True])
@pytest.mark.parametrize("length_s", [0.1, 0.3, 0.7, 1.0])
def test_samples_of_many_periods_are_those_of_the_periods_one_by_one(length_s, vacant):
    def fleet():
        roster = Roster([application()])
        ids = roster.join(join([0] * 6))
        if vacant:
            roster.leave(ids[[1, 4]])
        return UsageSamples(roster), Interval(length_s), roster.living()

    rng = np.random.default_rng(3)
    (one, interval, ids), (other, ahead, _) = fleet(), fleet()
    first = 0
    for count in (3, 4, 25, 1, 40):
        at_s = PERIOD_S * np.arange(first + 1.0, first + count + 1.0)
        cores, memory = rng.random((count, len(ids))), rng.integers(0, 1000, (count, len(ids)))
        taken = []
        for row, end_s in enumerate(at_s.tolist()):
            nothing = np.zeros(len(ids))
            one.add(PeriodStats(ids, nothing, nothing, nothing > 0, cores[row], memory[row], PERIOD_S, end_s))
            if interval.over(end_s, PERIOD_S):
                taken.append((row, *one.take()))
        ends = ahead.ends(at_s, PERIOD_S)
        slots, means, peaks = other.add_all(add_up, ids, History(cores, memory, PERIOD_S), ends)
        assert [row for row, *_ in taken] == ends
        for number, (_, *sample) in enumerate(taken):
            for told, wanted in zip((slots, means[number], peaks[number]), sample, strict=True):
                assert told.tolist() == wanted.tolist()
        assert one.memory_bytes.tolist() == other.memory_bytes.tolist()
        first += count
