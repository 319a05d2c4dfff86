from __future__ import annotations

from dataclasses import replace

import numpy as np

from control.scheduler import make, settings
from tests.control.scheduler.worlds import after, cluster, state


def tiresias(where, **given):
    return make("tiresias", where, 0, {"tiresias": settings("tiresias", given)})


def test_a_job_with_much_service_gives_way_to_a_new_one() -> None:
    where = cluster((0, 4))
    before = state(where, [4, 4])
    scheduler = tiresias(where)
    first = scheduler.on_round(before)
    assert first.row.tolist() == [0]
    # 4 GPUs reach 3600 GPU-s after 900 s.
    assert np.isclose(scheduler.wake_s(before, first), before.now_s + 900)
    assert scheduler.on_round(after(before, first, passes_s=899)).row.tolist() == [0]
    assert scheduler.on_round(after(before, first, passes_s=901)).row.tolist() == [1]


def test_what_does_not_fit_is_skipped() -> None:
    where = cluster((0, 4))
    assert tiresias(where).on_round(state(where, [3, 2, 1])).row.tolist() == [0, 2]


def test_a_starved_job_returns_to_the_first_queue() -> None:
    where = cluster((0, 1))
    base = replace(
        state(where, [1, 1]),
        attained_gpu_s=np.array([4000.0, 5000.0]),
        ran_s=np.array([4000.0, 5000.0]),
        first_start_s=np.array([10.0, 5.0]),
        idle_since_s=np.array([0.0, 0.0]),
    )
    waits = replace(base, now_s=8 * 4000.0 + 1)
    # Both are in the second queue; without promotion the one that started first runs.
    assert tiresias(where, knob=0.0).on_round(waits).row.tolist() == [1]
    assert tiresias(where).on_round(waits).row.tolist() == [0]


def test_one_queue_is_fifo_with_backfill() -> None:
    where = cluster((0, 4), (0, 4))
    before = state(where, [3, 8, 4, 1, 2])
    one = tiresias(where, thresholds_gpu_s=[1e12], knob=0.0)
    fifo = make("fifo-backfill", where, 0)
    for _ in range(2):
        given, same = one.on_round(before), fifo.on_round(before)
        assert sorted(set(given.row.tolist())) == sorted(set(same.row.tolist()))
        before = after(before, same)
