"""The data that charts draw of clients and services: equal to the tables' figures, and small."""

import math
from dataclasses import replace
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab.charts import series, services, services_drawing
from lab.charts.palette import shown
from lab.containers.run.waiting import waiting
from lab.runs.publishing import write_table
from lab.runs.report import document
from lab.runs.store import Run, RunStore
from tests.lab.sample_runs import publish

STATUSES = ["ok", *services.NOT_ANSWERED]


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A run of 4 s whose clients are still to be written."""
    return publish(RunStore(tmp_path_factory.mktemp("store")))


def with_clients(run: Run, rows: list[tuple[float, str, float, str]]) -> Run:
    """The run with these requests: at_s, kind, latency_s, status."""
    frame = pd.DataFrame(rows, columns=["at_s", "kind", "latency_s", "status"]).astype(
        {"at_s": float, "latency_s": float}
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for name in ("kind", "status"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(pa.string()).dictionary_encode())
    digest = write_table(Path(run.path) / "requests.parquet", table)
    return replace(run, manifest={**run.manifest, "tables": {**run.manifest["tables"], "requests": digest}})


def test_latency_counts_when_a_request_came_and_throughput_when_it_was_answered(bare):
    run = with_clients(
        bare,
        [
            (0.1, "a", 0.2, "ok"),
            (0.5, "a", 2.0, "ok"),
            (0.6, "b", 0.1, "dropped"),
            (2.5, "a", math.nan, "pending"),
            (3.9, "a", 0.05, "ok"),
        ],
    )
    frame = services.over_time(run, 10)
    assert list(frame["at_s"]) == [0, 1, 2, 3]
    assert list(frame["arrived_rps"]) == [3, 0, 1, 1]
    assert list(frame["answered_rps"]) == [1, 0, 1, 1]
    assert list(frame["dropped"]) == [1, 0, 0, 0]
    assert list(frame["pending"]) == [0, 0, 1, 0]
    assert list(frame["not_answered_rps"]) == [1, 0, 1, 0]
    # The dropped request is later than both answers, and the pending one waited at least 1.5 s.
    assert frame["p50"].tolist() == pytest.approx([2.0, math.nan, 1.5, 0.05], nan_ok=True)
    assert frame["p50_at_least"].tolist() == [False, False, True, False]
    assert frame["p99"][0] == pytest.approx(2.0 + 0.98 * 1.4)
    assert frame["p99_at_least"].tolist() == [True, False, True, False]


_REQUESTS = st.lists(
    st.tuples(st.floats(0, 3.999), st.sampled_from("abc"), st.floats(1e-6, 5), st.sampled_from(STATUSES)),
    min_size=1,
    max_size=60,
)


@pytest.mark.slow
@given(_REQUESTS, st.integers(1, 6))
@example(rows=[(0.0, "a", 1.0, "ok"), (0.0, "a", 2.0, "ok"), (3.0, "a", 1.0, "timed_out")], most=1)
@settings(max_examples=25)
def test_every_request_is_in_one_stretch(bare, rows, most):
    run = with_clients(bare, rows)
    frame = services.over_time(run, most)
    length = frame["to_s"] - frame["at_s"]
    assert len(frame) <= most
    assert length.sum() == pytest.approx(4.0)
    assert (frame["arrived_rps"] * length).sum() == pytest.approx(len(rows))
    lost = sum(status != "ok" for *_, status in rows)
    assert (frame["not_answered_rps"] * length).sum() == pytest.approx(lost)
    assert (frame["p50"].fillna(0) <= frame["p99"].fillna(0)).all()
    assert services.fates(run)["share"].sum() == pytest.approx(lost / len(rows))
    kinds = services.by_kind(run)
    assert kinds["requests"].sum() == len(rows)
    assert kinds["requests"].is_monotonic_decreasing


@given(st.floats(0.1, 1e6), st.integers(1, 1000))
def test_stretches_have_round_lengths_and_are_few_enough(duration_s, most):
    manifest = {"workload": {"periods": duration_s, "period_s": 1.0}}
    width = services.stretch_s(Run(Path(), manifest), most)
    assert width >= 1
    assert math.ceil(duration_s / width - 1e-6) <= most
    assert float(f"{width:.6g}") / 10 ** math.floor(math.log10(width) + 1e-9) == pytest.approx(
        round(width / 10 ** math.floor(math.log10(width) + 1e-9))
    )


@pytest.mark.slow
def test_the_latency_distribution_has_the_metrics_quantiles(asked):
    run = asked[1][0]
    frame = services.latency_distribution(run).set_index("share")["latency_s"]
    assert frame[0.5] == pytest.approx(run.metrics["latency_p50_s"])
    assert frame[0.9] == pytest.approx(run.metrics["latency_p90_s"])
    assert np.interp(0.99, frame.index, frame) == pytest.approx(run.metrics["latency_p99_s"], rel=0.02)
    assert frame.is_monotonic_increasing


def test_without_an_answer_latency_is_a_bound_and_has_no_distribution(bare):
    run = with_clients(bare, [(0.5, "a", math.nan, "pending")])
    assert services.latency_distribution(run).empty
    assert services.over_time(run, 10)["p99"][0] == pytest.approx(3.5)
    (kind,) = services.by_kind(run).to_dict("records")
    assert (kind["p50"], kind["p50_at_least"]) == (pytest.approx(3.5), True)


def test_figures_of_containers_agree_with_the_tables(asked):
    run = asked[1][0]
    frame = services.by_container(run).set_index("container")
    assert list(frame.index) == run.manifest["workload"]["containers"]
    assert frame.loc["webui", "visits_rps"] == pytest.approx(run.metrics["throughput_rps"], rel=0.02)
    one = series.container(run, "webui")
    assert frame.loc["webui", "usage_cores"] == pytest.approx(one["usage_cores"].mean(), rel=1e-4)
    assert frame.loc["webui", "throttled_share"] == pytest.approx(one["throttled"].mean())


def test_limit_changes_are_counted_by_reason_and_direction():
    frame = pd.DataFrame(
        {
            "quota_cores": [1.0, 1.0, 2.0, 1.5, 1.0, math.nan, 3.0, 3.5],
            "reason": ["start", "start", "up", "down", "down", "down", "restart", "up"],
        }
    )
    found = services.limit_changes(frame)
    assert found.to_dict("list") == {
        "reason": ["down", "up", "restart"],
        "times": [2, 2, 1],
        "raised": [0, 2, 1],
        "lowered": [2, 0, 0],
    }
    assert services.limit_changes(frame.iloc[:2]).empty


def test_the_parts_of_the_cost_make_the_cost(asked):
    for run in asked[1]:
        parts = services.costs(run)
        hours = series.duration_s(run) / 3600
        assert parts["per_hour"].sum() * hours == pytest.approx(run.metrics["cost"])


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=20))
def test_an_axis_of_latencies_has_marks_inside_it(values):
    scale, axis = services_drawing.logarithmic_axis(pd.Series(values))
    low, high = scale.to_dict()["domain"]
    assert low < min(values)
    assert high > max(values)
    assert len(axis.to_dict()["values"]) >= 1
    assert all(low <= tick <= high for tick in axis.to_dict()["values"])


@pytest.mark.slow
def test_charts_are_valid_and_small_however_many_requests_there_were(asked):
    runs = shown(asked[1])
    frames = {each.title: services.over_time(each.run, 300) for each in runs}
    answered = {title: frame for title, frame in frames.items() if frame["p99"].notna().any()}
    cdf = pd.concat(services.latency_distribution(each.run).assign(title=each.title) for each in runs)
    costs = pd.concat(services.costs(each.run).assign(title=each.title) for each in runs)
    fates = pd.concat(services.fates(each.run).assign(title=each.title) for each in runs)
    charts: list[alt.TopLevelMixin] = [
        *(services_drawing.latency_over_time(answered, runs, key) for key in services.PERCENTILES),
        services_drawing.throughput(frames, runs),
        services_drawing.failures(frames, runs),
        services_drawing.fates(fates, runs),
        services_drawing.latency_distribution(cdf, runs),
        services_drawing.costs(costs, runs, "USD"),
        services_drawing.waiting(waiting(asked[1][0]).rows),
    ]
    assert all(len(chart.to_json()) < 100_000 for chart in charts)


@pytest.mark.slow
def test_the_legend_of_many_runs_takes_nothing_from_a_chart_s_height(asked):
    few = shown(asked[1])
    many = [replace(few[0], title=f"Escra · kappa={number} · seed {number}") for number in range(8)]
    frame = services.over_time(few[0].run, 40)
    high = services_drawing.throughput({look.title: frame for look in many}, many).height
    low = services_drawing.throughput({look.title: frame for look in few}, few).height
    assert high - low == 18 * (8 - 2)  # a row for each of the eight, and for each of the two


def test_the_report_of_runs_with_clients_says_what_clients_saw(asked):
    page = document(asked[1])
    for title in ("Latency over time", "All latencies", "Throughput", "Reserved and used over time"):
        assert f"<h2>{title}</h2>" in page


@pytest.mark.slow
def test_the_report_keeps_different_loads_apart(asked):
    run = asked[1][0]
    other = replace(
        run,
        manifest={
            **run.manifest,
            "id": "other",
            "workload": {**run.manifest["workload"], "arrivals": "fixed"},
            "spec": {**run.manifest["spec"], "services": {"arrivals": "fixed"}},
        },
    )
    page = document([run, other])
    assert "<h2>Throughput: teastore, burst</h2>" in page
