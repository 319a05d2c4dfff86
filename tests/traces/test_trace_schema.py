from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.trace_strategies import same, usage_traces
from traces.schema import QUANTITIES, UsageTrace, select, validate
from twinbed import TraceError


def small() -> UsageTrace:
    present = np.ones((4, 2), np.bool_)
    present[0, 1] = False
    usage = np.where(present, 1.0, 0.0)
    return UsageTrace(("web", "db"), ("shop", "shop"), 100.0, 0.5, usage, usage * 1e6, present)


@given(usage_traces())
def test_a_valid_trace_passes(trace: UsageTrace) -> None:
    validate(trace, "it")


@given(usage_traces(), st.data())
def test_every_single_corrupted_cell_is_caught_and_named(trace: UsageTrace, data: st.DataObject) -> None:
    rows, columns = trace.shape
    row, column = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    name = data.draw(st.sampled_from([n for n in QUANTITIES if getattr(trace, n) is not None]))
    bad = [np.nan, np.inf, -np.inf, -1e-9] + ([] if trace.present[row, column] else [1.0])
    values = getattr(trace, name).copy()
    values[row, column] = data.draw(st.sampled_from(bad))
    with pytest.raises(TraceError) as error:
        validate(replace(trace, **{name: values}), "file.csv")
    message = str(error.value)
    assert message.startswith("file.csv: ")
    assert f"interval {row + 1} (" in message
    assert f"column {name}" in message
    assert repr(trace.containers[column]) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"containers": ("web", "web")}, "'web' appears twice"),
        ({"containers": ("web", " ")}, "column 2 is empty"),
        ({"containers": ("web",)}, "1 container names for 2 columns"),
        ({"apps": ("shop",)}, "1 app names for 2 columns"),
        ({"interval_s": 0.0}, "interval is 0.0 s"),
        ({"interval_s": float("nan")}, "interval is nan s"),
        ({"start_s": float("inf")}, "start is inf"),
        ({"memory_bytes": np.zeros((3, 2))}, "memory_bytes has shape (3, 2)"),
        ({"cpu_cores": np.zeros((4, 2), np.float32)}, "cpu_cores is float32"),
        ({"present": np.ones((4, 2), np.int64)}, "present is int64"),
    ],
)
def test_a_wrong_header_is_named(change: dict[str, object], words: str) -> None:
    with pytest.raises(TraceError, match="it: ") as error:
        validate(replace(small(), **change), "it")  # type: ignore[arg-type]
    assert words in str(error.value)


def test_a_trace_without_rows_or_containers_is_refused() -> None:
    none = np.empty((0, 2))
    with pytest.raises(TraceError, match="0 rows"):
        validate(replace(small(), cpu_cores=none, memory_bytes=none, present=none.astype(bool)), "it")
    with pytest.raises(TraceError, match="no containers"):
        validate(replace(small(), present=np.empty((4, 0), bool)), "it")


def test_selecting_everything_changes_nothing() -> None:
    trace = small()
    assert select(trace) is trace
    assert select(trace, ["web", "db"], 0.0, 99.0) is trace


def test_selection_keeps_the_order_asked_for_and_says_what_it_did() -> None:
    trace = small()
    part = select(trace, ["db", "web"], start_s=0.5, end_s=1.5)
    assert part.containers == ("db", "web")
    assert part.start_s == 100.5
    assert part.shape == (2, 2)
    assert part.present.all()
    assert part.notes == ("Selected 2 of 2 containers and intervals 2 to 3 of 4.",)
    validate(part, "part")


@given(usage_traces(max_rows=8), st.data())
def test_selecting_in_two_steps_equals_selecting_in_one(trace: UsageTrace, data: st.DataObject) -> None:
    rows = trace.shape[0]
    first = data.draw(st.integers(0, rows - 1))
    last = data.draw(st.integers(first + 1, rows))
    start, end = first * trace.interval_s, last * trace.interval_s
    once = select(trace, None, start, end)
    twice = select(select(trace, None, start), None, None, end - start)
    assert once.shape == (last - first, trace.shape[1])
    assert same(replace(once, notes=(), start_s=0.0), replace(twice, notes=(), start_s=0.0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"containers": ["wep"]}, "no container 'wep' in the trace; close: web"),
        ({"containers": ["web", "web"]}, "distinct"),
        ({"containers": []}, "at least one"),
        ({"start_s": 2.0}, "no interval begins from 2 s: the trace is 2 s long"),
        ({"start_s": 1.0, "end_s": 1.0}, "no interval begins from 1 s to 1 s"),
    ],
)
def test_an_impossible_selection_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(TraceError) as error:
        select(small(), **arguments)  # type: ignore[arg-type]
    assert words in str(error.value)
