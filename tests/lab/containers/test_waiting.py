"""The services whose waiting makes a run's p99. A service with too little CPU is named. A run without spans
says why."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from lab import api
from lab.ask.scenario import build
from lab.charts.palette import shown
from lab.containers.run.savings import savings
from lab.containers.run.waiting import Waiting, explained, told, waiting
from lab.explorer import html
from lab.runs.compare import as_result
from lab.runs.formats import table
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.sample_runs import publish
from tests.lab.sample_services import question, write_app
from twinbed import ScenarioError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waiting")
    # The database needs 0.4 core and begins with 0.25: it is where requests wait.
    app = write_app(
        folder,
        services={
            "web": {"handlers": {"page": {"cpu_ms": 1.0, "calls": ["db.find"]}}},
            "db": {"handlers": {"find": {"cpu_ms": 8.0}}},
        },
    )
    asked = question(app, policies=["escra"], budget={"cpu_cores": 0.5, "memory_bytes": 1 << 30})
    return api.run(asked, store=str(folder / "store")).runs[0]


def test_the_service_with_too_little_cpu_is_blamed(run):
    found = waiting(run)
    assert found.rows["service"].tolist() == ["db", "web"]
    assert found.rows["slow_wait_s"].iloc[0] > 5 * found.rows["slow_wait_s"].iloc[1]
    assert found.rows["throttled_share"].iloc[0] > 0
    assert "mostly in db" in told(found)[0]


def test_time_on_the_path_adds_up_to_the_latency(run):
    found = waiting(run)
    columns = ["slow_wait_s", "slow_work_s", "typical_wait_s", "typical_work_s"]
    sums = found.rows[columns].sum()
    assert sums["slow_wait_s"] + sums["slow_work_s"] == pytest.approx(found.slow_s)
    assert sums["typical_wait_s"] + sums["typical_work_s"] == pytest.approx(found.typical_s)


def test_records_are_for_machines(run):
    result = explained(run)
    assert [row["service"] for row in result.rows] == ["db", "web"]
    assert all(isinstance(row["slow_wait_s"], float) for row in result.rows)


def test_a_run_without_spans_says_why(run, tmp_path):
    with pytest.raises(ScenarioError, match="has no requests"):
        explained(publish(RunStore(tmp_path)))
    tables = {name: digest for name, digest in run.manifest["tables"].items() if name != "spans"}
    for backend, why in (("testbed", "the testbed keeps no spans"), ("twin", "make it again")):
        bare = replace(run, manifest={**run.manifest, "tables": tables, "backend": backend})
        with pytest.raises(ScenarioError, match=why):
            explained(bare)


def of(store, text, cores, refinement=None, spec=None, seed=0):
    """A run that reserves so much; refinement: what it reserved with other refinements."""
    run = publish(store, text, seed=seed, metrics={"mean_reserved_cores": cores}, spec=spec)
    return replace(run, manifest={**run.manifest, "refinement": refinement or {}})


def refined(store):
    static = of(store, "static", 4.0, {"seeds": [5.0], "flat": [2.0]})
    return [of(store, "escra", 1.0, {"seeds": [1.0], "flat": [1.0]}), static]


def test_the_smaller_saving_counts_and_the_interval_is_over_refinement_seeds(store):
    saving = savings(refined(store), ["escra", "static"])["escra"]
    # 1/4 and 1/5 with refinement, 1/2 without.
    assert (saving.low, saving.high) == (pytest.approx(-0.8), pytest.approx(-0.75))
    assert saving.counted == saving.flat == pytest.approx(-0.5)


def test_without_refinement_there_is_one_saving(store):
    runs = [of(store, "escra", 1.0), of(store, "static", 4.0)]
    saving = savings(runs, ["escra", "static"])["escra"]
    assert saving.counted == saving.low == saving.high == pytest.approx(-0.75)
    assert math.isnan(saving.flat)


def test_without_a_static_run_there_is_none(store):
    assert savings([of(store, "escra", 1.0)], ["escra"]) == {}


def test_a_run_is_measured_against_the_static_run_under_its_own_conditions(store):
    factors = [{"budget_factor": factor} for factor in (1.5, 3.0)]
    static = [of(store, "static", cores, spec=spec) for cores, spec in zip((4.0, 8.0), factors, strict=True)]
    escra = [of(store, "escra", 2.0, spec=spec) for spec in factors]
    found = savings([*static, *escra], ["s1", "s2", "one", "two"])
    # 2/4 and 2/8; the first static run is under the first condition.
    assert [found[name].counted for name in ("one", "two")] == pytest.approx([-0.5, -0.75])
    assert savings([static[0], escra[1]], ["static", "escra"]) == {}


def test_static_without_parameters_is_the_base_wherever_it_stands(store):
    runs = [of(store, "static:factor=0.8", 0.1), of(store, "static", 4.0), of(store, "escra", 2.0)]
    found = savings(runs, ["tight", "static", "escra"])
    assert {name: saving.counted for name, saving in found.items()} == {"escra": pytest.approx(-0.5)}
    text = html.cards(shown(runs))
    assert "\N{MINUS SIGN}50 % against Static" in text
    assert text.count("the others are measured against it") == 1


def test_a_table_names_the_tuned_static_run_that_is_its_base(store):
    runs = [of(store, f"static:factor={factor}", cores) for factor, cores in ((0.8, 4.0), (1.5, 8.0))]
    said = table(as_result([*runs, of(store, "escra", 2.0)]))
    assert "Reserved CPU, change from static:factor=0.8 (%)" in said
    assert "-50.00" in said
    said = table(as_result([*runs, of(store, "static", 4.0), of(store, "escra", 2.0)]), 200)
    assert "Reserved CPU, change from static (%)" in said


def test_of_several_seeds_the_smaller_saving_counts_and_the_remark_says_so(store):
    runs = [of(store, "static", 4.0, seed=seed) for seed in (1, 2)]
    runs += [of(store, "escra", cores, seed=seed) for seed, cores in ((1, 2.0), (2, 1.0))]
    said = " ".join(table(as_result(runs)).replace("· ", "").split())
    assert (
        "escra reserves 75 % less to 50 % less CPU than static, by the seed. The smaller saving counts."
        in said
    )


def test_table_and_card_lead_with_the_smaller_saving(store):
    runs = refined(store)
    assert "-50.00" in table(as_result(runs))
    assert "-80.00 to -75.00" in table(as_result(runs))
    said = "escra reserves 50 % less CPU than static: 80 % less to 75 % less with samples refined"
    assert said in " ".join(table(as_result(runs)).replace("· ", "").split())
    text = html.cards(shown(runs))
    assert "\N{MINUS SIGN}50 % against Static" in text
    assert "\N{MINUS SIGN}80 % to \N{MINUS SIGN}75 % with it" in text


def test_runs_of_a_coarse_trace_are_repeated_without_what_refinement_invents(store, tmp_path):
    rows = [f"{60 * step},web,{0.2 + step % 3},1000000" for step in range(6)]
    (tmp_path / "coarse.csv").write_text("\n".join(["timestamp,container,cpu_cores,memory_bytes", *rows]))
    raw = {"name": "coarse", "trace": {"source": str(tmp_path / "coarse.csv")}, "policies": ["static"]}
    (run,) = run_scenario(build(raw), store, jobs=1)
    (flat,), seeds = run.manifest["refinement"]["flat"], run.manifest["refinement"]["seeds"]
    assert len(seeds) == 2
    # Flat samples of at most 2.2 cores, times 1.5.
    assert flat == pytest.approx(3.3, rel=1e-3)
    assert all(flat < cores for cores in [*seeds, run.metrics["mean_reserved_cores"]])
    (plain,) = run_scenario(build(raw | {"refine": {"repeats": 0}}), store, jobs=1)
    assert "refinement" not in plain.manifest
    assert plain.metrics["mean_reserved_cores"] == pytest.approx(run.metrics["mean_reserved_cores"])


def test_many_services_that_wait_alike_have_one_that_is_named():
    rows = pd.DataFrame({"service": [f"s{number}" for number in range(30)]})
    rows[["slow_wait_s", "slow_work_s", "typical_wait_s", "typical_work_s", "throttled_share"]] = 0.01
    assert "mostly in s0 (3% of it)" in told(Waiting(rows, 10, 0.6, 10, 0.3))[0]
