from dataclasses import replace

import numpy as np
import pytest

from control.jobs import Job, LocalRun, Objective
from lab.cli.main import call
from lab.cloud.input.store import Measurements, Run
from lab.cloud.run import recommending
from lab.cloud.run.recommending import Market, Question, answer, priced
from lab.cloud.run.table import result
from traces.catalogue.catalogue import load
from twinbed import ScenarioError, TwinbedError

AWS = Market("ap-southeast-1", types=("c4.xlarge", "m4.xlarge"), workers=(1, 2, 4), server="m4.large")


@pytest.fixture
def database(tmp_path):
    return Measurements(tmp_path / "m.duckdb")


@pytest.fixture
def one_job_ships(monkeypatch):
    """One job instead of the dozens that ship, whose kinship takes seconds to weigh at each question."""
    monkeypatch.setattr(recommending, "shipped_runs", lambda: tuple(past_of("theirs")))


def test_a_cluster_is_paid_for_with_its_server():
    among, used, _ = priced(load(), AWS)
    assert len(among) == 6
    row = [str(among.configuration(row)) for row in range(6)].index("2 × c4.xlarge + 1 × m4.large")
    prices = {name: listing.price_usd_h for name, listing in used.items()}
    assert among.price_usd_h[row] == pytest.approx(2 * prices["c4.xlarge"] + prices["m4.large"])


@pytest.mark.parametrize(
    ("market", "message"),
    [
        (Market("mars-1"), "no on-demand price in region 'mars-1'"),
        (Market("us-central1", types=("warp-9",)), "no instance type 'warp-9'"),
        (Market("us-central1", types=("n1-standard-400",)), "; there are n1-standard-4, "),
        (Market("mars-1", market="spot"), "no spot price"),
        (Market("us-central1", workers=(0, 1)), "must be 1 or more"),
        (Market("us-central1", workers=(1, 10**9)), "up to 1,000,000"),
    ],
)
def test_what_has_no_price_is_said(market, message, database):
    with pytest.raises(TwinbedError, match=message):
        answer(Question(Job("new"), market), load(), database)


def test_without_a_local_run_a_past_or_a_trial_there_is_no_figure(database):
    market = Market("us-central1", workers=(1, 2, 4))
    asked = Question(Job("new", batch=32), market, deadline_s=60.0, shipped=False)
    answered = answer(asked, load(), database, most=5)
    assert len(answered.ranking) == 5
    for row in answered.ranking:
        ends = (row.time_interval.low, row.time_interval.high, row.cost_interval.low, row.cost_interval.high)
        assert np.isnan([row.time_s, row.cost_usd, *ends]).all()
        assert not any(letter.isdigit() for letter in row.reason)
    assert answered.next_step.startswith("Next: twinbed profile")
    assert answered.problem == ""
    notes = " ".join(answered.notes)
    assert "cannot be told" in notes
    assert "0 other jobs of yours, 0 trials" in notes
    assert "us-central1, US$" in notes


@pytest.mark.usefixtures("one_job_ships")
def test_a_cluster_on_which_every_trial_failed_is_left_out_and_named(database):
    tried = [replace(run, job="new") for run in past_of("mine")]
    database.add([*past_of("mine"), tried[0], replace(tried[1], ok=False, time_s=5.0)])
    market = Market("us-central1", types=("n1-standard-4", "n1-standard-8"), workers=(1,))
    for method in ("transfer", "cherrypick"):
        answered = answer(Question(Job("new"), market, method=method), load(), database)
        assert [str(row.configuration) for row in answered.ranking] == ["1 × n1-standard-4"]
        assert "Left out, because every trial there failed: 1 × n1-standard-8." in answered.notes


@pytest.mark.usefixtures("one_job_ships")
def test_two_providers_may_sell_types_of_one_name_in_a_region(tmp_path, database):
    columns = "name,provider,region,market,price_per_h,currency,as_of,vcpus,memory_gib,gpus,gpu_model,"
    rows = "m4,a,here,{},USD,2024-01-01,4,8,0,,1e9,m,,,me", "m4,b,here,{},USD,2024-01-01,4,8,0,,1e9,m,,,me"
    lines = [row.format(f"on-demand,{price}") for row, price in zip(rows, (0.2, 0.1), strict=True)]
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([f"{columns}network_bps,family,cpu_speed,disk_gib,source", *lines]))
    database.add([Run("new", "a/m4", 1, 3600.0, 0.2, 4, 8), *past_of("mine")])
    answered = answer(Question(Job("new"), Market("here", workers=(1, 2))), load(path), database)
    assert {row.configuration.instance for row in answered.ranking} == {"a/m4", "b/m4"}
    assert any("measured" in row.reason for row in answered.ranking)


def past_of(job: str, count: int = 3) -> list[Run]:
    types = ("n1-standard-4", "n1-standard-8", "e2-standard-16")[:count]
    return [
        Run(job, name, 1, 7200.0 / 2**place, 0.2 * 2**place, 4 * 2**place, 15 * 2**place)
        for place, name in enumerate(types)
    ]


@pytest.mark.usefixtures("one_job_ships")
def test_a_past_of_one_s_own_brings_figures_and_what_ships_does_not(database):
    market = Market("us-central1", types=("n1-standard-8", "e2-standard-16"), workers=(1, 2))
    answered = answer(Question(Job("new"), market), load(), database)
    assert all(np.isnan(row.time_s) for row in answered.ranking)
    assert any("1 shipped jobs" in note for note in answered.notes)
    alone = answer(Question(Job("new"), market, shipped=False), load(), database)
    assert not any("shipped" in note for note in alone.notes)
    database.add(past_of("mine"))
    answered = answer(Question(Job("new"), market), load(), database)
    assert all(np.isfinite(row.time_s) for row in answered.ranking)
    assert "predicted from 2 past jobs" in answered.ranking[0].reason


def test_no_feasible_cluster_is_said_first_and_the_closest_leads(database):
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    market = Market("us-central1", types=("n1-standard-4", "e2-standard-16"), workers=(1, 2, 4))
    late = answer(Question(job, market, deadline_s=120.0), load(), database)
    assert late.problem == "no cluster is likely to keep the deadline of 2 min; the closest come first"
    times = [row.time_s for row in late.ranking]
    assert times == sorted(times)
    assert "over in the median" in late.ranking[0].reason
    far = answer(Question(job, market, deadline_s=1.0), load(), database)
    assert far.problem == "no cluster is likely to keep the deadline of 1 s; the closest come first"
    assert f"; {far.ranking[0].time_s:,.0f} times the bound in the median" in far.ranking[0].reason
    assert answer(Question(job, market, deadline_s=1e6), load(), database).problem == ""


def test_a_trial_that_is_in_the_database_sharpens_the_answer(database):
    question = Question(Job("new"), AWS, Objective.TIME, shipped=False)
    database.add([Run("new", "m4.xlarge", 1, 9000.0, 0.375, 4, 16, servers=1, server_instance="m4.large")])
    before = answer(question, load(), database).ranking[0].time_interval
    database.add([Run("new", "c4.xlarge", 2, 3000.0, 0.587, 4, 7.5, servers=1, server_instance="m4.large")])
    answered = answer(question, load(), database)
    after = answered.ranking[0].time_interval
    assert after.high / after.low < before.high / before.low
    assert "measured in trial 2: 0.833 h" in {row.reason for row in answered.ranking}


def alone(job: str, instance: str, use_bps: float, **other: object) -> Run:
    return Run(
        job, instance, 1, 600.0, 0.36, 4, 16, servers=1, server_instance="m4.large", use_bps=use_bps, **other
    )


def test_scala_opt_takes_each_type_s_network_use_from_runs_with_one_server_and_one_worker(database):
    database.add([alone("new", "m4.xlarge", 140e6), alone("new", "c4.xlarge", 150e6)])
    database.add([alone("new", "c4.xlarge", 160e6), alone("new", "c4.xlarge", 170e6)])
    database.add([alone("other", "m4.xlarge", 9e9), alone("new", "m4.xlarge", 9e9, batch=512)])
    answered = answer(Question(Job("new"), AWS, method="scala-opt"), load(), database)
    # 0.95 · 450 Mbit/s serve 3 × m4.xlarge and, at the median of 160 Mbit/s, 2 × c4.xlarge.
    assert str(answered.ranking[0].configuration) == "2 × c4.xlarge + 1 × m4.large"
    assert any("measured on c4.xlarge, m4.xlarge" in note for note in answered.notes)
    fixed = Market("ap-southeast-1", types=("m4.xlarge",), workers=(1, 2, 3, 4), server="m4.large")
    only = answer(Question(Job("new"), fixed, method="scala-opt-m"), load(), database)
    assert str(only.ranking[0].configuration) == "3 × m4.xlarge + 1 × m4.large"
    with pytest.raises(ScenarioError, match="takes the one type that you fix; 2 are given"):
        answer(Question(Job("new"), AWS, method="scala-opt-m"), load(), database)


def test_of_several_servers_the_budget_s_widest_is_taken(database):
    several = Market(
        "ap-southeast-1", types=("c4.xlarge",), workers=(1, 2), server="m4.large,m4.2xlarge,m4.10xlarge"
    )
    for budget_usd_h, server in ((1.0, "m4.2xlarge"), (10.0, "m4.10xlarge")):
        question = Question(Job("new"), several, method="cost-opt", budget_usd_h=budget_usd_h)
        assert answer(question, load(), database).ranking[0].configuration.server_instance == server
    anything = replace(several, server="auto")
    question = Question(Job("new"), anything, method="cost-opt", budget_usd_h=1.0)
    assert answer(question, load(), database).ranking[0].configuration.servers == 1
    with pytest.raises(ScenarioError, match="budget-per-hour"):
        answer(Question(Job("new"), anything, method="cost-opt"), load(), database)


def test_scala_opt_without_measured_runs_takes_the_local_run_s_model_by_type(database):
    series = np.full((5, 3), 1.0)
    run = LocalRun(1.0, series, series, series, series, np.full(20, 0.1), 32, 1_000_000)
    answered = answer(Question(Job("new", local_run=run), AWS, method="scala-opt"), load(), database)
    assert any("measured on no type" in note for note in answered.notes)
    with pytest.raises(ScenarioError, match=r"how much network one m4\.xlarge uses is not known"):
        answer(Question(Job("new"), AWS, method="scala-opt"), load(), database)
    with pytest.raises(ScenarioError, match="parameter server; name its type"):
        answer(Question(Job("new"), Market("us-central1"), method="cost-opt"), load(), database)


@pytest.mark.slow
def test_the_verbs_work_together(tmp_path, capsys):
    job, runs, database = tmp_path / "job.yaml", tmp_path / "runs.csv", str(tmp_path / "m.duckdb")
    job.write_text("name: demo\nbatch: 32\n")
    runs.write_text(
        "job,instance,workers,time_s,price_usd_h,vcpus,memory_gib\ndemo,n1-standard-4,2,5000,0.38,4,15\n"
    )
    assert call(["measurements", "import", str(runs), "--measurements", database]) == 0
    assert call(["measurements", "list", "--measurements", database, "--format", "csv"]) == 0
    assert "demo,1,0,1" in capsys.readouterr().out
    verb = [
        "recommend", str(job), "--no-shipped-runs", "--measurements", database, "--workers", "1,2,4",
        "--format", "csv",
    ]  # fmt: skip
    assert call([*verb, "--by", "time", "--deadline", "6h", "--budget", "5", "--top", "30"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rank,configuration,time_h")
    assert "2 × n1-standard-4" in out
    assert call([*verb, "--by", "time", "--deadline", "1s"]) == 1
    assert capsys.readouterr().out.startswith("rank,configuration,time_h")
    assert call([*verb, "--deadline", "soon"]) == 2
    assert "--deadline soon: expected a number and a unit" in capsys.readouterr().err
    assert call([*verb, "--budget-per-hour", "0.01"]) == 2
    assert "below the cheapest cluster" in capsys.readouterr().err
    assert call([*verb, "--method", "oracle"]) == 2
    assert "no recommender 'oracle'; there are transfer, analytic" in capsys.readouterr().err


def local_run(cores: float = 0.5, step_s: float = 0.1) -> LocalRun:
    series = np.full((5, 3), 1.0)
    return LocalRun(1.0, cores * series, series, 1e5 * series, 1e5 * series, np.full(20, step_s), 32, 250_000)


def test_rare_long_steps_count_in_the_time_of_the_whole_job(database):
    steps_s = np.full(20, 0.1)
    steps_s[::10] = 1.1  # every tenth step writes a checkpoint: 0.2 s in the mean, and a median of 0.1 s
    job = Job("new", local_run=replace(local_run(), step_s=steps_s), batch=32, samples=32e6)
    asked = Question(job, Market("us-central1", types=("n1-standard-4",), workers=(1,)), Objective.TIME)
    (only,) = answer(asked, load(), database).ranking
    assert only.time_s == pytest.approx(180 + 1e6 * 0.5 * 0.2 / 4)


def test_a_local_run_alone_is_answered_by_the_analytic_model(database):
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    market = Market("us-central1", types=("n1-standard-4", "e2-standard-16"), workers=(1, 2))
    answered = answer(Question(job, market, Objective.TIME), load(), database)
    times = {str(row.configuration): row.time_s for row in answered.ranking}
    # 0.05 CPU seconds a step: 10^6 steps on 4 vCPUs take 12,500 s, and start-up comes first.
    assert times["1 × n1-standard-4"] == pytest.approx(180 + 12_500)
    # 2 workers, half the steps; each adds 2 · 1/2 of 8 Mbit over 16 Gbit/s.
    assert times["2 × e2-standard-16"] == pytest.approx(180 + 5e5 * (0.05 / 16 + 8e6 / 16e9))
    first = answered.ranking[0]
    assert first.time_interval.low < first.time_s / 3 < 3 * first.time_s < first.time_interval.high
    assert "no past job, no trial" in first.reason
    assert "come from the analytic model" in " ".join(answered.notes)
    assert answered.next_configuration == first.configuration
    assert answered.prices["n1-standard-4"].as_of.year == 2022


def test_without_the_gradients_noise_no_batch_is_better_than_the_job_s_own(database):
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    market = Market("us-central1", types=("n1-standard-4",), workers=(1, 2))
    for batches, nearest in (((16, 32, 64, 128), 32), ((48, 256), 48)):
        question = Question(job, replace(market, batches=batches), method="analytic")
        told = answer(question, load(), database)
        assert {row.configuration.batch for row in told.ranking} == {nearest}
        assert any("only the one nearest the job's own is ranked" in note for note in told.notes)
    (plain, *_) = answer(Question(job, market, method="analytic"), load(), database).ranking
    assert plain.configuration.batch is None


def test_a_trial_or_a_past_job_ends_the_analytic_model_s_turn(database):
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    database.add([Run("new", "n1-standard-8", 1, 3000.0, 0.38, 8, 30)])
    answered = answer(Question(job, Market("us-central1", workers=(1, 2)), shipped=False), load(), database)
    assert "come from the analytic model" not in " ".join(answered.notes)


HEAD = (
    "name,provider,region,market,price_per_h,currency,as_of,vcpus,memory_gib,gpus,gpu_model,network_bps,"
    "family,cpu_speed,disk_gib,source"
)
OWN = "{},hetzner,fsn1,on-demand,{},USD,2026-01-01,{},16,0,,1e9,x,,,mine"


def test_a_catalogue_of_one_s_own_needs_no_known_provider(database, tmp_path):
    table = tmp_path / "own.csv"
    unknown = OWN.format("cx62", 0.1, 32).replace(",1e9,", ",,")
    table.write_text("\n".join([HEAD, OWN.format("cx32", 0.01, 4), OWN.format("cx52", 0.04, 16), unknown]))
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    told = answer(Question(job, Market("fsn1", workers=(1, 2)), Objective.TIME), load(table), database)
    times = {str(row.configuration): row.time_s for row in told.ranking}
    assert times["1 × cx32"] == pytest.approx(60 + 12_500)
    said = "No billing rules of hetzner are known; assumed: by the second, and 60 s to start."
    assert said in told.notes
    assert [name for name in times if "cx62" in name] == ["1 × cx62"]
    assert any(note.endswith("has no network rate: cx62.") for note in told.notes)


def test_a_type_that_is_named_twice_counts_once():
    twice = Market("us-central1", types=("n1-standard-4", "n1-standard-4"), workers=(1, 2))
    assert len(priced(load(), twice)[0]) == 2


def test_the_analytic_model_says_what_it_lacks(database):
    market = Market("us-central1")
    with pytest.raises(ScenarioError, match=r"job new: .*make one with twinbed profile"):
        answer(Question(Job("new"), market, method="analytic"), load(), database)
    job = Job("new", local_run=local_run())
    with pytest.raises(ScenarioError, match="knows its time on no candidate"):
        answer(Question(job, market, method="analytic"), load(), database)


def test_types_with_gpus_are_left_out_of_what_a_local_run_tells(database):
    job = Job("new", local_run=local_run(), batch=32, samples=32e6)
    market = Market("ap-southeast-1", types=("p2.xlarge", "c4.xlarge"), workers=(1, 2), server="m4.large")
    for method in ("analytic", "transfer"):
        answered = answer(Question(job, market, method=method), load(), database)
        assert {row.configuration.instance for row in answered.ranking} == {"c4.xlarge"}
        assert "Left out, because no run tells of types with GPUs: p2.xlarge." in answered.notes
        assert "Analytic made every row" in answered.notes[0]
    database.add(
        [Run("new", "p2.xlarge", 1, 900.0, 1.8, 4, 61, gpus=1, servers=1, server_instance="m4.large")]
    )
    answered = answer(Question(job, market, shipped=False), load(), database)
    assert {row.configuration.instance for row in answered.ranking} == {"p2.xlarge"}
    assert any(note.startswith("Only GPUs whose") for note in answered.notes)
    only = Question(Job("newer"), replace(market, types=("p2.xlarge",)), shipped=False)
    with pytest.raises(ScenarioError, match="no run on GPUs was measured") as refused:
        answer(only, load(), Measurements(database.path.with_name("none.duckdb")))
    assert not any(letter.isdigit() for letter in str(refused.value))


@pytest.mark.usefixtures("one_job_ships")
@pytest.mark.parametrize("method", ["transfer", "cherrypick"])
def test_runs_without_gpus_tell_nothing_of_those_with_gpus_unless_a_job_ran_on_both(method, database):
    """A job that ran on GPUs alone shows no ratio to types without them."""
    ran = [replace(run, job="new") for run in past_of("x")]
    gpu = Run("other", "g2-standard-4", 1, 900.0, 0.7, 4, 16, gpus=1)
    database.add([*ran, gpu, replace(gpu, workers=2, time_s=500.0)])
    market = Market("us-central1", types=("n1-standard-4", "g2-standard-4"), workers=(1, 2))
    asked = Question(Job("new"), market, method=method)
    answered = answer(asked, load(), database)
    assert {row.configuration.instance for row in answered.ranking} == {"n1-standard-4"}
    assert "Left out, because no run tells of types with GPUs: g2-standard-4." in answered.notes
    database.add([replace(gpu, job="new")])
    assert len(answer(asked, load(), database).ranking) == 4
    newest = answer(replace(asked, job=Job("newest"), method="transfer"), load(), database)
    assert len(newest.ranking) == 4


def test_of_many_types_the_measured_ones_are_ranked_and_else_those_that_none_beats():
    catalogue, market = load(), Market("us-central1")
    assert recommending.usual_types(catalogue, market, {"n1-standard-4", "x"}) == ("n1-standard-4",)
    listed = catalogue.types("us-east-1")
    kept = recommending.usual_types(catalogue, Market("us-east-1"), ())
    assert len(kept) == recommending.MOST_TYPES
    assert not [name for name in kept if name.startswith("t4g")]
    for own in (listed[name] for name in kept if not listed[name].gpus):
        assert not any(
            row.price_usd_h < own.price_usd_h and row.vcpus >= own.vcpus and row.memory_gib >= own.memory_gib
            for row in (listed[other] for other in kept)
        )


def test_prices_are_named_of_the_types_that_are_shown(database):
    database.add([Run("new", "g4dn.xlarge", 1, 100_000.0, 0.526, 4, 16, gpus=1)])
    told = answer(Question(Job("new", batch=64), Market("us-east-1", workers=(1,))), load(), database, most=2)
    shown = {row.configuration.instance for row in told.ranking} | {told.next_configuration.instance}
    prices = str(result(told, "cost").facts["prices"])
    assert {price.split()[0] for price in prices.split("; ")} == shown
    assert told.notes[0].startswith("Known: 0 other jobs of yours, 1 trial of this job.")
    assert not any("no local run" in note for note in told.notes)


@pytest.mark.usefixtures("one_job_ships")
def test_trials_on_clusters_that_are_not_asked_about_are_counted(database):
    database.add([replace(run, job="new") for run in past_of("new")])
    market = Market("us-central1", types=("n1-standard-4",), workers=(1, 8))
    answered = answer(Question(Job("new"), market), load(), database)
    assert any(note.startswith("2 trials of this job ran on clusters") for note in answered.notes)
    (wide,) = (row for row in answered.ranking if row.configuration.workers == 8)
    assert wide.outside
    assert "8 workers from 1" in wide.reason
    assert any("memory is not judged" in note for note in answered.notes)


def test_an_answer_without_figures_speaks_of_no_intervals(database):
    market = Market("us-central1", types=("n1-standard-4",), workers=(1,))
    notes = " ".join(answer(Question(Job("new"), market), load(), database).notes)
    assert "interval" not in notes
    assert "how long it takes is not known before a trial" in notes


@pytest.mark.usefixtures("one_job_ships")
@pytest.mark.parametrize("method", ["transfer", "cherrypick", "ernest"])
def test_trials_on_fewer_workers_tell_of_the_clusters_asked_about(database, method):
    times = {1: 10_500.0, 2: 5_400.0, 4: 2_900.0}
    database.add([Run("new", "n1-standard-4", n, time_s, 0.19 * n, 4, 15) for n, time_s in times.items()])
    market = Market("us-central1", types=("n1-standard-4",), workers=(8, 16))
    answered = answer(Question(Job("new"), market, method=method), load(), database)
    assert {row.configuration.workers for row in answered.ranking} == {8, 16}
    for row in answered.ranking:
        assert 10_500 / row.configuration.workers < row.time_s < 2_900
        assert f"{row.configuration.workers} workers from 4" in row.reason
    assert answered.next_configuration.workers in (8, 16)
    assert not any("leaves out" in note for note in answered.notes)


@pytest.mark.usefixtures("one_job_ships")
def test_a_deadline_that_nothing_keeps_asks_for_no_further_trial(database):
    database.add([Run("new", "n1-standard-4", n, 10_000.0 / n, 0.19 * n, 4, 15) for n in (1, 2, 4)])
    market = Market("us-central1", types=("n1-standard-4",), workers=(1, 2, 3, 4, 8))
    answered = answer(Question(Job("new"), market, deadline_s=60.0), load(), database)
    assert answered.next_step.startswith("Take: 4 × n1-standard-4")
    assert "less than 5%" in answered.next_step


def test_trials_on_other_widths_tell_of_gpus_although_types_without_any_are_left_out(database):
    gpu = Run("new", "g2-standard-4", 4, 900.0, 2.8, 4, 16, gpus=1)
    database.add([gpu, Run("new", "n1-standard-4", 1, 7200.0, 0.19, 4, 15)])
    market = Market("us-central1", types=("n1-standard-4", "g2-standard-4"), workers=(1, 2))
    answered = answer(Question(Job("new"), market, shipped=False), load(), database)
    clusters = {str(row.configuration) for row in answered.ranking}
    assert clusters == {"1 × g2-standard-4", "2 × g2-standard-4"}


def test_a_trial_with_the_job_s_own_batch_size_counts_however_it_is_stated(database):
    run = Run("new", "n1-standard-4", 1, 7200.0, 0.19, 4, 15)
    database.add([run, replace(run, batch=32), replace(run, batch=64)])
    market = Market("us-central1", types=("n1-standard-4",), workers=(1,))
    for batches, trials in (((), 2), ((32, 128), 2), ((32, 64), 3)):
        asked = Question(Job("new", batch=32), replace(market, batches=batches), method="exhaustive")
        assert len(answer(asked, load(), database).ranking) == trials


def test_the_first_answer_counts_the_start_of_machines(database):
    database.add(past_of("mine"))
    # 5 core-seconds of work, after the 3 min that Google's machines take to start.
    job = Job("new", local_run=local_run(), batch=32, samples=3200.0)
    market = Market("us-central1", types=("n1-standard-4", "n1-standard-8"), workers=(1, 2))
    ranking = answer(Question(job, market, shipped=False), load(), database).ranking
    assert "predicted from 1 past job" in ranking[0].reason
    assert np.exp(np.mean(np.log([row.time_s for row in ranking]))) == pytest.approx(180, rel=0.4)


def test_a_rule_that_predicts_no_time_says_that_it_leaves_the_deadline_out(database):
    asked = Question(Job("new"), AWS, method="cost-opt", budget_usd_h=1.0)
    said = "cost-opt predicts no time, so deadline and budget did not count."
    assert said not in answer(asked, load(), database).notes
    assert said in answer(replace(asked, deadline_s=60.0), load(), database).notes
