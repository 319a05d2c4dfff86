"""`twinbed whatif` and `twinbed run`: from a file to a comparison, and the same bytes again."""

import csv
import io
import json
import os
import sys

import pytest

from lab.containers.metrics import METRICS
from twinbed import BackendError

SCENARIO = """\
name: steps
policies: [escra, static]
workload:
  containers:
    - name: web
      steps: [{duration_s: 2, cpu_cores: 0.2}, {duration_s: 2, cpu_cores: 1.5}]
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "steps.yaml"
    path.write_text(SCENARIO)
    return path


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_selection_may_be_an_option_of_the_trace(twinbed, csv_path):
    ended = twinbed("whatif", csv_path, "--policy", "static", "--trace-option", "max_containers=1")
    assert (ended.code, ended.err) == (0, "")
    assert "Selected 1 of " in ended.out
    assert "max_containers" in twinbed("whatif", csv_path, "--trace-option", "max_containers=many").refused


def test_four_policies_stand_beside_each_other_with_every_metric_notes_price_and_ids(twinbed, csv_path):
    ended = twinbed("whatif", csv_path)
    assert (ended.code, ended.err) == (0, "")
    header = next(line for line in ended.out.splitlines() if line.split()[:1] == ["escra"])
    assert header.split() == ["escra", "autopilot", "vpa", "static"]
    for metric in METRICS:
        assert (metric.title in ended.out) != (metric.section == "requests")
    assert "Refined from 1 s to 0.1 s" in ended.out
    assert "it never updated" in ended.out
    assert "Price: " in ended.out
    assert "mine-escra-" in ended.out
    assert max(len(line) for line in ended.out.splitlines()) <= 100


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_the_same_question_gives_the_same_bytes(twinbed, csv_path, form):
    arguments = ("whatif", csv_path, "--policy", "escra,static", "--format", form)
    assert twinbed(*arguments).out == twinbed(*arguments).out


def test_the_stored_tables_of_a_repeated_run_are_the_same_bytes(twinbed, csv_path, store_path):
    def contents():
        twinbed("whatif", csv_path, "--policy", "escra", "--seed", 3)
        return {path.name: path.read_bytes() for path in store_path.glob("*/*.parquet")}

    first = contents()
    assert len(first) == 4
    assert contents() == first


def test_policies_may_be_repeated_and_carry_parameters(twinbed, csv_path):
    ended = twinbed(
        "whatif", csv_path, "--policy", "static:factor=0.5", "--policy", "escra, static", "--format", "csv"
    )
    assert [row["policy"] for row in records(ended.out)] == ["static:factor=0.5", "escra", "static"]


def test_several_seeds_become_means_with_intervals(twinbed, csv_path):
    ended = twinbed(
        "whatif", csv_path, "--policy", "escra", "--seed", 1, "--seed", 2, "--seed", 3, "--format", "csv"
    )
    (row,) = records(ended.out)
    assert row["seeds"] == "3"
    assert float(row["cpu_slack_p50_cores_ci95"]) > 0


def test_a_price_on_the_command_line_is_used_and_named(twinbed, csv_path):
    arguments = ("whatif", csv_path, "--policy", "static", "--price", "2,0,EUR")
    (row,) = records(twinbed(*arguments, "--format", "csv").out)
    assert row["currency"] == "EUR"
    assert float(row["cost"]) == pytest.approx(2 * float(row["reserved_core_h"]))
    assert "Price: 2 EUR per core-hour" in twinbed(*arguments).out.replace("\n  ", " ")


def test_a_price_with_a_decimal_comma_is_refused(twinbed, csv_path):
    ended = twinbed("whatif", csv_path, "--policy", "static", "--price", "0,03,0,004")
    assert ended.code == 2
    ended = twinbed("whatif", csv_path, "--policy", "static", "--price", "0,03")
    assert ended.code == 2
    assert "--price 0,03: expected CPU,MEMORY[,CURRENCY], e.g. 0.03,0.004,EUR" in ended.err


def test_global_limits_are_the_questions_also_beside_a_policy_without_limits(twinbed, scenario):
    sized = scenario.read_text().replace("name: web", "name: web\n      memory_bytes: 1048576")
    scenario.write_text(sized.replace("[escra, static]", "[static, unlimited]"))
    facts = json.loads(twinbed("run", scenario, "--format", "json").out)["facts"]
    assert facts["global limits"] == "2.25 cores, 1.5 MiB (1.5 × the profiled peaks)"


def test_a_part_of_the_trace_can_be_replayed(twinbed, csv_path):
    ended = twinbed(
        "whatif", csv_path, "--policy", "static", "--container", "web", "--start", 5, "--end", 15,
        "--format", "json",
    )  # fmt: skip
    assert "1 container, 10 s" in json.loads(ended.out)["facts"]["workload"]


def test_the_budget_and_any_other_key_can_be_set(twinbed, csv_path):
    ended = twinbed(
        "whatif", csv_path, "--policy", "escra", "--budget-factor", 3, "--set", "host_cores=16",
        "--set", "escra.kappa=0.5", "--format", "json",
    )  # fmt: skip
    document = json.loads(ended.out)
    assert "(3 × the profiled peaks)" in document["facts"]["global limits"]
    assert document["facts"]["machine"].startswith("16-core hosts")
    assert document["rows"][0]["policy"] == "escra:kappa=0.5"


def test_runs_can_be_named(twinbed, csv_path):
    assert "Runs: trial-static-" in twinbed("whatif", csv_path, "--policy", "static", "--name", "trial").out


def test_a_scenario_file_is_run_with_its_policies(twinbed, scenario):
    ended = twinbed("run", scenario, "--format", "csv")
    assert [row["policy"] for row in records(ended.out)] == ["escra", "static"]


def test_seeds_on_the_command_line_replace_the_scenarios(twinbed, scenario):
    ended = twinbed("run", scenario, "--seed", 4, "--format", "csv")
    assert [row["seed"] for row in records(ended.out)] == ["4", "4"]


def test_the_testbed_is_refused_where_no_containers_can_be_run(twinbed, scenario, monkeypatch):
    def refuse():
        raise BackendError("/sys/fs/cgroup: no permission; run as root")

    monkeypatch.setattr("lab.containers.real.backend.check", refuse)
    question = ("--set", f"host_cores={os.cpu_count()}", "--backend", "testbed")
    assert twinbed("run", scenario, *question).refused.endswith("run as root")


def test_equal_runs_of_the_twin_have_no_repeats(twinbed, scenario):
    assert "--backend testbed" in twinbed("run", scenario, "--repeat", 1).refused


def test_stored_runs_compare_as_they_did_when_they_were_made(twinbed, csv_path):
    made = twinbed("whatif", csv_path, "--policy", "escra,static", "--format", "json")
    ids = [row["run"] for row in json.loads(made.out)["rows"]]
    assert twinbed("compare", *ids, "--format", "json").out == made.out


@pytest.mark.slow
def test_a_report_is_one_file_and_says_where_it_is(twinbed, csv_path, tmp_path):
    twinbed("whatif", csv_path, "--policy", "escra")
    target = tmp_path / "out.html"
    ended = twinbed("report", "mine-escra", "--html", target, "--format", "json")
    assert ended.rows[0]["bytes"] == target.stat().st_size
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_refused_and_leaves_nothing(twinbed, csv_path, tmp_path):
    twinbed("whatif", csv_path, "--policy", "static")
    refused = twinbed("report", "mine", "--html", tmp_path / "no" / "out.html").refused
    assert "out.html: cannot be written, there is no folder" in refused
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(("options", "started"), [(("--jobs", "3"), 3), ((), 5)])
def test_dask_starts_as_many_workers_as_a_sweep_would(twinbed, csv_path, monkeypatch, options, started):
    asked = []
    monkeypatch.setattr("lab.engine.local.cores", lambda: 5)
    monkeypatch.setattr("lab.engine.dask.Dask", lambda _, jobs: asked.append(jobs) or sys.exit(0))
    with pytest.raises(SystemExit):
        twinbed("whatif", csv_path, "--engine", "dask", *options)
    assert asked == [started]
