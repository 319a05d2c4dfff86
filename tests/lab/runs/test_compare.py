"""Runs beside each other, without simulating any."""

import math
from dataclasses import replace
from json import loads

import pandas as pd
import pytest

from lab import kinds
from lab.charts.palette import shown
from lab.containers.metrics import METRICS
from lab.containers.run.remarks import facts, legend, remarks
from lab.explorer.html import cards
from lab.runs.compare import as_result, comparison, over_seeds, partial, summary
from lab.runs.formats import csv, json, markdown, table
from lab.runs.labels import labels
from lab.runs.metric import summary as stored
from tests.lab.sample_runs import publish
from twinbed import StoreError

COST = [metric for metric in METRICS if metric.key == "cost"]


def test_a_comparison_has_one_row_per_run_in_the_order_given_and_every_metric(store):
    runs = [publish(store, text) for text in ("vpa", "escra")]
    frame = comparison(runs)
    assert list(frame["run"]) == [run.id for run in runs]
    flags = [f"{metric.key}_censored" for metric in METRICS if metric.may_be_bound]
    assert list(frame.columns[-len(METRICS) - len(flags) :]) == [*(metric.key for metric in METRICS), *flags]


def test_a_lower_bound_reads_so_for_people_and_has_a_flag_for_machines(store):
    bound = publish(store, "vpa", metrics={"latency_p50_s": 27.3}, censored=("latency_p50_s",))
    shown = as_result([publish(store), bound])
    assert "> 27.3000" in table(shown)
    assert "never ended" in table(shown)
    assert [row["latency_p50_s_censored"] for row in loads(json(shown))["rows"]] == [False, True]


def test_the_mean_of_seeds_with_a_bound_is_a_bound_without_an_interval(store):
    runs = [
        publish(store, seed=seed, metrics={"latency_p50_s": value}, censored=keys)
        for seed, value, keys in ((0, 2.0, ()), (1, 4.0, ("latency_p50_s",)))
    ]
    row = over_seeds(comparison(runs)).iloc[0]
    assert (row["latency_p50_s"], row["latency_p50_s_censored"]) == (3.0, True)
    assert math.isnan(row["latency_p50_s_ci95"])
    assert "> 3.0" in table(as_result(runs))


def test_an_undefined_metric_is_nan_in_the_frame_and_a_dash_for_people(store):
    run = publish(store, metrics={"memory_slack_p50_mib": math.nan})
    assert math.isnan(comparison([run])["memory_slack_p50_mib"].iloc[0])
    assert as_result([run]).rows[0]["memory_slack_p50_mib"] is None or math.isnan(
        float(as_result([run]).rows[0]["memory_slack_p50_mib"])
    )


def test_a_stored_summary_has_a_row_for_each_metric_with_what_is_known_of_it():
    of = {metric.key: metric for metric in METRICS}
    money, kills = of["cost"], of["oom_kills"]
    rows = stored([money, kills], {"cost": 2.0}, "EUR", ["cost"]).to_pylist()
    assert rows[0] == {"metric": "cost", "value": 2.0, "unit": "EUR", "censored": True}
    assert math.isnan(rows[1].pop("value"))
    assert rows[1] == {"metric": "oom_kills", "unit": kills.unit, "censored": False}
    assert stored([money], {}).to_pylist()[0]["unit"] == ""


def test_no_runs_and_a_run_given_twice_are_refused(store):
    run = publish(store)
    with pytest.raises(StoreError, match="no runs"):
        comparison([])
    with pytest.raises(StoreError, match=f"{run.id} is given twice"):
        comparison([run, run])


def test_seeds_become_a_mean_with_the_95_percent_interval_of_students_t(store):
    values = (1.0, 2.0, 6.0)
    runs = [publish(store, seed=i, metrics={"cost": value}) for i, value in enumerate(values)]
    row = over_seeds(comparison(runs)).iloc[0]
    assert (row["seeds"], row["currency"]) == (3, "USD")
    assert row["cost"] == pytest.approx(3.0)
    # s = sqrt(((1-3)² + (2-3)² + (6-3)²) / 2) = √7; t(0.975, 2) = 4.302653; 4.302653 · √7 / √3 = 6.572411
    assert row["cost_ci95"] == pytest.approx(6.572411, abs=1e-6)


def test_means_come_in_the_order_in_which_their_runs_were_given(store):
    runs = [publish(store, text, seed=seed) for seed in (0, 1) for text in ("vpa", "escra")]
    frame = over_seeds(comparison(runs))
    assert list(frame["policy"]) == ["vpa", "escra"]
    keys = [metric.key for metric in METRICS]
    assert [column for column in frame.columns if column in keys] == keys


def test_a_single_seed_has_no_interval_and_an_undefined_value_is_left_out_of_the_mean(store):
    runs = [publish(store, seed=i, metrics={"cost": value}) for i, value in enumerate((2.0, math.nan))]
    row = over_seeds(comparison(runs)).iloc[0]
    assert row["cost"] == 2.0
    assert math.isnan(row["cost_ci95"])


def test_a_mean_over_some_of_the_seeds_is_told(store):
    runs = [publish(store, seed=i, metrics={"cost": value}) for i, value in enumerate((2.0, math.nan, 4.0))]
    title = COST[0].title
    told = [note for note in as_result(runs).notes if "of 3 seeds" in note]
    assert len(told) == 1
    assert told[0].startswith(f"escra: {title}")
    assert "2 of 3 seeds that have a value (without seed 1)" in told[0]
    whole = [publish(store, seed=i, metrics={"cost": 1.0}) for i in (4, 5)]
    assert not [note for note in as_result(whole).notes if "have a value" in note]


def test_figures_with_a_mean_over_some_of_the_seeds_are_counted_after_the_first_four():
    def notes(figures, costs=(2.0, math.nan)):
        return partial(((name, pd.DataFrame({"seed": [0, 1], "cost": costs})) for name in figures), COST)

    assert [note[0] for note in notes("abcd")] == ["a", "b", "c", "d"]
    assert notes("abcdefg") == [*notes("abcd"), "The same holds for figures of 3 more."]
    assert notes("a", [math.nan, math.nan]) == notes("a", [2.0, 3.0]) == []


def test_runs_that_differ_in_the_seed_alone_share_a_label(store):
    assert labels([publish(store, seed=0), publish(store, seed=1)]) == ["escra", "escra"]


@pytest.mark.parametrize(
    ("specs", "wanted"),
    [
        ([{"budget_factor": factor} for factor in (1.5, 2.0)], ["budget_factor=1.5", "budget_factor=2.0"]),
        ([{"services": {"app": name}} for name in ("a", "b")], ["app=a", "app=b"]),
        (
            [{"here": {"app": name}, "there": {"app": name}} for name in ("a", "b")],
            ["here.app=a there.app=a", "here.app=b there.app=b"],
        ),
        ([{"few": dict.fromkeys("xyz", name)} for name in ("a", "b")], ["x=a y=a z=a", "x=b y=b z=b"]),
    ],
)
def test_runs_that_differ_in_a_condition_are_labelled_with_it(store, specs, wanted):
    assert labels([publish(store, spec=spec) for spec in specs]) == [f"escra {text}" for text in wanted]


def test_runs_of_different_scenarios_are_labelled_with_their_names(store):
    assert labels([publish(store, name="a"), publish(store, name="b")]) == ["a escra", "b escra"]


def test_a_trace_of_another_name_is_not_told_apart_twice(store):
    runs = [publish(store, name="a"), publish(store, name="b", sha256="cd" * 32)]
    assert labels(runs) == ["a escra", "b escra"]


@pytest.mark.parametrize(
    ("key", "changes", "said"),
    [
        ("calibration", {"name": "mine"}, "calibration="),
        ("versions", {"code_sha256": "cd" * 32}, "code=cdcdcdcd"),
    ],
)
def test_runs_of_another_calibration_or_of_other_code_are_no_seeds_of_one_question(store, key, changes, said):
    first, other = publish(store), publish(store, seed=1)
    changed = {**other.manifest, key: {**other.manifest[key], **changes}}
    runs = [first, replace(other, manifest=changed)]
    assert len(set(labels(runs))) == 2
    assert said in labels(runs)[1]
    assert [row["run"] for row in as_result(runs).rows] == [run.id for run in runs]


def test_the_code_of_the_testbed_is_no_further_difference_from_the_twin(store):
    first, other = publish(store), publish(store, seed=1)
    versions = {**other.manifest["versions"], "code_sha256": "cd" * 32}
    real = replace(other, manifest={**other.manifest, "backend": "testbed", "versions": versions})
    assert labels([first, real]) == ["escra backend=twin", "escra backend=testbed"]


def test_of_many_conditions_a_label_lists_those_that_are_unusual(store):
    conditions = ({}, {}, {"budget_factor": 9.0}, {"period_s": 0.2, "host_cores": 9.0}, {"threads": 2.0})
    runs = [publish(store, seed=seed, spec=spec) for seed, spec in enumerate(conditions)]
    wanted = [
        "escra",
        "escra",
        "escra budget_factor=9.0",
        "escra period_s=0.2 host_cores=9.0",
        "escra threads=2.0",
    ]
    assert labels(runs) == wanted


def test_only_the_first_of_many_runs_are_named_for_people(store):
    notes = as_result([publish(store, seed=seed) for seed in range(10)]).notes
    assert notes[-1].endswith("and 2 more, which `twinbed runs list` names.")


def test_runs_that_differ_in_much_are_labelled_with_their_ids(store):
    spec = {"budget_factor": 9.0, "period_s": 0.2, "host_cores": 9.0, "threads": 2.0}
    runs = [publish(store), publish(store, spec=spec)]
    assert labels(runs) == [f"escra {run.id[-10:]}" for run in runs]


def test_names_that_tell_runs_apart_need_no_ids(store):
    spec = {"budget_factor": 9.0, "period_s": 0.2, "host_cores": 9.0, "threads": 2.0}
    runs = [publish(store, name="a"), publish(store, name="b", spec=spec)]
    assert labels(runs) == ["a escra", "b escra"]


def test_several_seeds_are_shown_as_one_record_with_its_spread(store):
    result = as_result([publish(store, text, seed=seed) for text in ("escra", "vpa") for seed in (0, 1)])
    assert [row["label"] for row in result.rows] == ["escra", "vpa"]
    assert [row["seeds"] for row in result.rows] == [2, 2]
    head = csv(result).splitlines()[0].split(",")
    assert head[:6] == ["label", "runs", "name", "policy", "seeds", "currency"]
    assert all(column.spread for column in result.columns if column.decimals is not None)
    assert any("95 % confidence interval" in note for note in result.notes)


def test_a_policy_whose_first_update_comes_after_the_trace_is_remarked_on_with_a_cure(store):
    run = publish(store, "autopilot", metrics={"limit_changes_per_s": 0.0})
    assert remarks([run]) == [
        "autopilot updates every 300 s and the trace is 4 s long: it never updated and kept its initial "
        "limits of 1 × the profiled peak. Try autopilot:update_interval_s=1."
    ]


def test_a_policy_that_could_have_acted_and_did_not_is_remarked_on(store):
    run = publish(store, "vpa:update_interval_s=1", metrics={"limit_changes_per_s": 0.0})
    assert remarks([run])[0].startswith(
        "vpa:update_interval_s=1 changed no limit: it kept its initial limits of 2 × the profiled peak, "
        "or less where the global limits are short."
    )


def test_a_vpa_that_controls_requests_only_is_not_expected_to_change_limits(store):
    policy = "vpa:controlled_values=requests_only"
    assert remarks([publish(store, policy, metrics={"limit_changes_per_s": 0.0})]) == []


def test_a_policy_that_acted_is_not_remarked_on(store):
    assert remarks([publish(store, "autopilot", metrics={"limit_changes_per_s": 0.5})]) == []
    assert remarks([publish(store, "static", metrics={"limit_changes_per_s": 0.0})]) == []


def test_escra_is_remarked_on_when_no_container_can_ever_give_cpu_back(store):
    # Ω = 3 cores over two containers: 1.5 cores each.
    assert remarks([publish(store, "escra:gamma=1.4")]) == []
    assert remarks([publish(store, "escra:gamma=1.5")]) == [
        "escra:gamma=1.5 starts every container with an equal share, 1.5 cores in this run, and takes back "
        "only what is unused beyond gamma = 1.5 cores: no container can give anything back, so the pool "
        "stays empty. Try escra:gamma=0.1."
    ]


def test_kills_are_remarked_on_with_the_containers_that_were_killed(store):
    assert remarks([publish(store, "vpa", kills=(0.0, 3.0))]) == [
        "vpa had containers killed for memory: db 3×."
    ]


def test_kills_of_several_seeds_are_added_up(store):
    runs = [publish(store, seed=seed, kills=(1.0, 2.0)) for seed in (0, 1)]
    assert remarks(runs) == ["escra had containers killed for memory: db 4×, web 2×."]


def test_what_killed_containers_do_not_reserve_while_they_are_down_is_no_saving(store):
    static = publish(store, "static", metrics={"mean_containers": 2.0})
    vpa = publish(store, "vpa", kills=(0.0, 3.0), metrics={"mean_containers": 0.5})
    assert remarks([static, vpa]) == [
        "vpa had containers killed for memory: db 3×. They were up for 25 % of the time that they were up "
        "under static, and reserve nothing while down: that is no saving."
    ]
    longer = publish(store, "escra", metrics={"mean_containers": 8.0}, spec={"budget_factor": 3.0})
    assert "killed for memory: db 3×." in remarks([vpa, longer])[-1]
    assert "They were up" not in remarks([vpa, longer])[-1]


def test_runs_on_different_data_are_not_compared_without_a_word(store):
    found = remarks([publish(store), publish(store, "vpa", sha256="cd" * 32)])
    assert found[0].startswith("These runs have different workloads:")


def test_notes_come_once_and_the_price_has_its_source(store):
    runs = [publish(store), publish(store, "vpa", notes=("A note on the data.", "Another."))]
    notes = runs[0].kind.notes(runs)
    assert notes[:2] == ["A note on the data.", "Another."]
    assert notes[2].startswith("Price: 0.031611 USD per core-hour")
    assert "as of 2026-07-22" in notes[2]
    assert len(notes) == 3


def unanswered(store, *statuses, text="escra", **given):
    """A run in which these became of the requests."""
    share = (len(statuses) - statuses.count("ok")) / len(statuses)
    return publish(store, text, metrics={"failed_share": share}, statuses=statuses, **given)


def test_requests_that_were_turned_away_are_remarked_on_with_where_it_was(store):
    run = unanswered(store, "ok", "dropped", "dropped", "failed", turned_away=(0.0, 2.0))
    assert remarks([run]) == [
        "escra left 75.0 % of the requests without an answer; most of these were turned away, because a "
        "queue was full. So db was saturated: more was asked than its limits or its host could serve."
    ]


def test_requests_that_failed_are_remarked_on_without_speaking_of_saturation(store):
    run = unanswered(store, "ok", "failed")
    assert remarks([run]) == [
        "escra left 50.0 % of the requests without an answer; most of these were lost, because a call failed "
        "or a container was killed, restarted or down."
    ]


def test_a_few_unanswered_requests_are_nothing_to_speak_of(store):
    assert remarks([unanswered(store, *["ok"] * 99, "failed")]) == []


def test_only_a_policys_worst_run_is_remarked_on(store):
    runs = [
        unanswered(store, "ok", "failed", spec={"budget_factor": 1.0}),
        unanswered(store, "failed", "failed", spec={"budget_factor": 2.0}),
    ]
    found = [text for text in remarks(runs) if "without an answer" in text]
    assert len(found) == 1
    assert found[0].startswith("escra budget_factor=2.0 left 100.0 % of the requests")


def test_facts_of_requests_say_what_was_asked_of_whom(store):
    about = facts([unanswered(store, "ok", "ok")])
    assert about["requests"] == "2 to shop, arrivals burst, 4 s"
    assert str(about["machine"]).startswith("3 hosts of 4 cores")
    assert "requests" not in facts([publish(store, "vpa")])


def test_facts_of_many_runs_stay_short(store):
    runs = [publish(store, name=f"n{index}") for index in range(6)]
    text = str(facts(runs)["workload"])
    assert text.endswith("; and 3 more")
    assert text.count(";") == 3


def test_the_legend_speaks_of_throughput_only_where_there_is_any(store):
    assert "throughput" not in legend([publish(store)])
    assert "throughput" in legend([unanswered(store, "ok")])


def test_what_no_run_has_is_left_out_for_people_and_kept_for_scripts(store):
    runs = [publish(store, text, metrics={"latency_p50_s": math.nan}) for text in ("escra", "vpa")]
    result = as_result(runs)
    assert "Latency p50" not in table(result)
    assert "Latency p50" not in markdown(result)
    assert "latency_p50_s" in csv(result)
    assert '"latency_p50_s": null' in json(result)
    one_has_it = as_result([runs[0], publish(store, "static")])
    assert "Latency p50" in table(one_has_it)


def test_a_policy_that_answers_little_where_another_serves_has_collapsed(store):
    served = publish(store, metrics={"failed_share": 0.01}, statuses=("ok",))
    fallen = publish(store, "vpa", metrics={"failed_share": 0.5}, statuses=("ok", "failed"))
    assert any(text.startswith("vpa collapsed") for text in remarks([served, fallen]))
    assert not any("collapsed" in text for text in remarks([fallen]))


def test_a_run_stored_before_a_metric_existed_has_none_of_it(store):
    old, new = publish(store, "vpa"), publish(store, "escra")
    del old.manifest["metrics"]["taken_back_per_s"], old.manifest["metrics"]["cost"]
    frame = comparison([old, new]).set_index("run")
    assert math.isnan(frame.loc[old.id, "taken_back_per_s"])
    assert not math.isnan(frame.loc[new.id, "taken_back_per_s"])
    (row,) = (row for row in summary(old).rows if row["metric"] == "taken_back_per_s")
    assert math.isnan(row["value"])
    assert "<dt>Cost</dt><dd>–</dd>" in cards(shown([old]))
    assert table(summary(new)).split()[:4] == ["Metric", "Title", "Value", "Unit"]
    assert csv(summary(old)).splitlines()[0] == "metric,title,value,censored,unit"
    assert "Limit changes taken back" in table(as_result([old, new]), width=100)


def test_every_metric_that_is_a_share_is_shown_as_a_percentage():
    for kind in kinds.KINDS:
        for metric in kind.metrics():
            said = metric.definition.lower()
            is_share = metric.unit == "1" and ("share of the" in said or "same share" in said)
            assert metric.key.endswith("_share") == is_share or "divided by" in said, metric.key
