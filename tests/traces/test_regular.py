from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from traces.readers.regular import Grid, onto_grid
from twinbed import TraceError


def grid(samples: list[tuple[str, float, float]], max_hold_s: float = 20.0) -> Grid:
    names, times, cpu = zip(*samples, strict=True)
    values = {"cpu_cores": np.array(cpu), "memory_bytes": np.array(cpu) * 10}
    return onto_grid(
        Path("it.csv"), pd.Series(names), np.array(times), values, interval_s=10.0, max_hold_s=max_hold_s
    )


def test_jitter_goes_to_the_nearest_interval() -> None:
    regular = grid([("a", 100.0, 1.0), ("a", 110.9, 2.0), ("a", 119.2, 3.0)])
    assert regular.start_s == 100.0
    assert regular.values["cpu_cores"][:, 0].tolist() == [1, 2, 3]
    assert regular.notes == ()


def test_of_two_samples_in_an_interval_the_later_counts() -> None:
    regular = grid([("a", 0.0, 1.0), ("a", 11.0, 9.0), ("a", 9.0, 2.0), ("a", 20.0, 3.0)])
    assert regular.values["cpu_cores"][:, 0].tolist() == [1, 9, 3]
    assert regular.notes == ("1 sample shared an interval with a later one, and is left out.",)


def test_a_short_hole_repeats_the_sample_before_and_is_counted() -> None:
    regular = grid([("a", 0.0, 1.0), ("a", 30.0, 4.0), ("b", 0.0, 1.0), ("b", 10.0, 1.0), ("b", 20.0, 1.0)])
    assert regular.values["cpu_cores"].tolist() == [[1, 1], [1, 1], [1, 1], [4, 1]]
    assert regular.values["memory_bytes"][:, 0].tolist() == [10, 10, 10, 40]
    assert regular.present.all()
    assert regular.notes == (
        "3 missing samples (38 %) filled with the one before (at a start, the one after), for at most 20 s.",
    )


def test_a_container_with_a_long_hole_is_left_out_by_name() -> None:
    regular = grid([("a", 0.0, 1.0), ("a", 50.0, 4.0), *(("b", 10.0 * i, 1.0) for i in range(6))])
    assert regular.containers == ("b",)
    assert regular.notes == ("1 container left out, without a sample or with a hole longer than 20 s (a).",)


def test_a_container_that_comes_late_and_goes_early_is_absent_there() -> None:
    regular = grid([("a", 40.0, 1.0), *(("b", 10.0 * i, 1.0) for i in range(9))])
    assert regular.present[:, 0].tolist() == [False] * 4 + [True] + [False] * 4
    assert regular.values["cpu_cores"][:, 0].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]


def test_the_grid_covers_where_cpu_was_measured() -> None:
    regular = grid([("a", 0.0, np.nan), ("a", 10.0, 1.0), ("a", 20.0, 2.0), ("a", 30.0, np.nan)])
    assert regular.start_s == 10.0
    assert regular.values["cpu_cores"][:, 0].tolist() == [1, 2]


def test_nothing_to_put_on_a_grid_is_an_error() -> None:
    with pytest.raises(TraceError, match=r"it\.csv: no CPU sample"):
        grid([("a", 0.0, np.nan)])
    with pytest.raises(TraceError, match="every container has a hole above max_hold_s, 5 s"):
        grid([("a", 0.0, 1.0), ("a", 20.0, 1.0)], max_hold_s=5.0)
    with pytest.raises(TraceError, match="more than 12000000 cells"):
        grid([("a", 0.0, 1.0), ("a", 1e10, 1.0)])


@pytest.mark.parametrize("hold_s", [float("inf"), 1e300])
def test_a_hold_without_end_fills_every_hole(hold_s: float) -> None:
    regular = grid([("a", 0.0, 1.0), ("a", 50.0, 4.0), ("b", 0.0, 1.0)], max_hold_s=hold_s)
    assert regular.containers == ("a", "b")
    assert regular.values["cpu_cores"].T.tolist() == [[1, 1, 1, 1, 1, 4], [1] * 6]


@pytest.mark.parametrize("hold_s", [-1.0, float("nan")])
def test_a_hold_that_is_no_time_is_refused(hold_s: float) -> None:
    with pytest.raises(TraceError, match=r"max_hold_s is .*, expected zero or above"):
        grid([("a", 0.0, 1.0)], max_hold_s=hold_s)
