"""The data that charts draw of a run: small, without losing anything that matters."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.allocator.model import Reason
from lab.charts import series
from lab.containers.run.figures import quantiles


def frame(values, up=None, throttled=None) -> pd.DataFrame:
    count = len(values)
    throttled = np.zeros(count, bool) if throttled is None else throttled
    return pd.DataFrame(
        {
            "at_s": (np.arange(count) + 1) * 0.1,
            "use": np.asarray(values, float),
            "up": np.ones(count, bool) if up is None else up,
            "throttled": throttled,
            "periods": np.ones(count, int),
            "throttled_periods": np.asarray(throttled, int),
        }
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(1, 20))
@settings(max_examples=60)
def test_thinning_keeps_both_extremes_both_ends_and_the_order(values, buckets):
    whole = frame(values)
    thin = series.thin(whole, ["use"], buckets)
    assert len(thin) <= max(3 * buckets + 1, 1)
    assert thin["use"].min() == whole["use"].min()
    assert thin["use"].max() == whole["use"].max()
    assert list(thin["at_s"].iloc[[0, -1]]) == list(whole["at_s"].iloc[[0, -1]])
    assert thin["at_s"].is_monotonic_increasing


def test_thinning_keeps_the_periods_around_an_absence():
    up = np.ones(1000, bool)
    up[501:520] = False
    whole = frame(np.ones(1000), up=up)
    whole.loc[~up, "use"] = np.nan
    kept = set(series.thin(whole, ["use"], 10).index)
    assert {500, 501, 519, 520} <= kept


def test_a_single_spike_survives_in_a_long_series():
    values = np.zeros(36_000)
    values[12_345] = 7.0
    assert 7.0 in set(series.thin(frame(values), ["use"], 300)["use"])


def test_a_line_of_steps_begins_with_each_stretch_of_rows():
    up = np.array([True, True, False, True, False])
    whole = frame(np.where(up, [1.0, 2.0, np.nan, 3.0, np.nan], np.nan), up=up)
    drawn = series.with_begins(whole, 0.1)
    assert drawn["at_s"].round(9).tolist() == [0.0, 0.1, 0.2, 0.3, 0.3, 0.4, 0.5]
    assert drawn["use"].fillna(0.0).tolist() == [1.0, 1.0, 2.0, 0.0, 3.0, 3.0, 0.0]
    assert drawn["at_s"].is_monotonic_increasing


@given(st.lists(st.booleans(), min_size=2, max_size=200), st.integers(1, 50))
@settings(max_examples=60)
def test_throttled_spans_cover_every_throttled_period_once(flags, most):
    spans = series.throttled_spans(frame(np.zeros(len(flags)), throttled=np.array(flags)), most)
    assert spans["throttled"].sum() == sum(flags)
    assert (spans["throttled"] <= spans["periods"]).all()
    assert (spans["from_s"].to_numpy()[1:] > spans["to_s"].to_numpy()[:-1] - 1e-9).all()
    assert len(spans) <= most


def test_neighbouring_throttled_periods_are_one_span_and_distant_ones_are_not():
    flags = np.zeros(100, bool)
    flags[[10, 11, 12, 50]] = True
    spans = series.throttled_spans(frame(np.zeros(100), throttled=flags), 100)
    assert spans["from_s"].tolist() == pytest.approx([1.0, 5.0])
    assert spans["to_s"].tolist() == pytest.approx([1.3, 5.1])


def test_of_many_periods_it_stays_visible_how_many_were_throttled():
    flags = np.zeros(10_000, bool)
    flags[::10] = True
    spans = series.throttled_spans(frame(np.zeros(10_000), throttled=flags), 100)
    assert (spans["throttled"] / spans["periods"]).tolist() == pytest.approx([0.1] * 100)


def test_a_containers_series_is_what_the_run_has_stored(stored):
    run = stored[1][0]
    seen = series.container(run, "c1")
    table = run.frame("periods")
    wanted = table[table["container"] == "c1"]
    assert np.allclose(seen["usage_cores"], wanted["usage_cores"])
    assert np.allclose(seen["limit_mib"], wanted["limit_bytes"] / 2**20)
    assert seen["at_s"].iloc[-1] == pytest.approx(series.duration_s(run))
    assert set(seen["reason"]) <= {reason.describe() for reason in Reason}


def test_a_limit_keeps_its_reason_until_it_is_set_again(stored):
    run = stored[1][0]
    seen = series.container(run, "c0")["reason"].to_numpy()
    codes = run.frame("periods").query("container == 'c0'")["cpu_reason"].to_numpy()
    last = Reason.NONE
    for text, code in zip(seen, codes, strict=True):
        last = Reason(code) or last
        assert text == last.describe()


@pytest.mark.parametrize("place", range(4))
def test_the_slack_distribution_agrees_with_the_metrics(stored, place):
    run = stored[1][place]
    table = run.frame("periods").query("up")
    cpu = series.slack_distribution(run, "cpu").set_index("share")["slack"]
    exact = quantiles((table["quota_cores"] - table["usage_cores"]).to_numpy(), (0.5, 0.99))
    assert [cpu[0.5], np.interp(0.99, cpu.index, cpu)] == pytest.approx(exact, rel=1e-4, abs=1e-6)
    assert cpu[0.5] == pytest.approx(run.metrics["cpu_slack_p50_cores"], rel=1e-4, abs=1e-6)
    memory = series.slack_distribution(run, "memory").set_index("share")["slack"]
    assert memory[0.5] == pytest.approx(run.metrics["memory_slack_p50_mib"], rel=1e-4, abs=1e-3)


def test_throttled_shares_average_to_the_metric(stored):
    run = stored[1][0]
    shares = series.throttled_share(run, 30)
    assert len(shares) == 30
    assert shares["share"].mean() == pytest.approx(run.metrics["throttled_share"])
    assert (shares["to_s"] > shares["at_s"]).all()
