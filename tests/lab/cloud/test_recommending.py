from pathlib import Path

import numpy as np
import pytest

from control.recommender.model import Job, LocalRun, Objective
from lab.cli.main import call
from lab.cloud.recommending import Market, Method, Question, answer, priced, seconds
from lab.cloud.store import Measurements, Run
from traces.catalogue.catalogue import load
from twinbed import ScenarioError, TwinbedError

AWS = Market("ap-southeast-1", types=("c4.xlarge", "m4.xlarge"), workers=(1, 2, 4), server="m4.large")


@pytest.fixture
def database(tmp_path: Path) -> Measurements:
    return Measurements(tmp_path / "m.duckdb")


@pytest.mark.parametrize(("text", "value"), [("6h", 21600), ("90m", 5400), ("1.5d", 129600), ("30", 30)])
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "6 hours", "-1h", "0h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ScenarioError, match="is no duration"):
        seconds(text)


def test_a_cluster_is_paid_for_with_its_server() -> None:
    among, used = priced(load(), AWS)
    assert len(among) == 6
    row = [str(among.configuration(each)) for each in range(6)].index("2 × c4.xlarge + 1 × m4.large")
    prices = {name: listing.price_usd_h for name, listing in used.items()}
    assert among.price_usd_h[row] == pytest.approx(2 * prices["c4.xlarge"] + prices["m4.large"])


@pytest.mark.parametrize(
    ("market", "message"),
    [
        (Market("mars-1"), "no on-demand price in 'mars-1'"),
        (Market("us-central1", types=("warp-9",)), "no instance type 'warp-9'"),
        (Market("ap-southeast-1", market="spot"), "no spot price"),
        (Market("us-central1", workers=(0, 1)), "must be 1 or more"),
    ],
)
def test_what_has_no_price_is_said(market: Market, message: str, database: Measurements) -> None:
    with pytest.raises(TwinbedError, match=message):
        answer(Question(Job("new"), market), load(), database)


@pytest.mark.slow
def test_without_a_local_run_or_past_jobs_the_answer_says_what_it_stands_on(database: Measurements) -> None:
    found = answer(Question(Job("new"), Market("us-central1", workers=(1, 2, 4))), load(), database, most=5)
    assert len(found.ranking) == 5
    assert not found.stopped
    notes = " ".join(found.notes)
    assert "no local run" in notes
    assert "0 other jobs of yours, 0 trials" in notes
    assert "us-central1, US$" in notes


def test_a_trial_that_is_in_the_database_sharpens_the_answer(database: Measurements) -> None:
    question = Question(Job("new"), AWS, Objective.TIME)
    before = answer(question, load(), database).ranking[0].time_interval
    database.add([Run("new", "c4.xlarge", 2, 3000.0, 0.587, 4, 7.5, servers=1, server_instance="m4.large")])
    found = answer(question, load(), database)
    after = found.ranking[0].time_interval
    assert after.high / after.low < before.high / before.low / 5
    assert "measured in trial 1: 3000 s" in {row.reason for row in found.ranking}


def test_scala_opt_takes_the_network_use_from_the_local_run(database: Measurements) -> None:
    series = np.full((5, 3), 1.0)
    moved = np.full((5, 3), 20e6)  # bytes per second: 160 Mbit/s
    run = LocalRun(1.0, series, series, moved, moved, np.full(20, 0.1), 32, 1000)
    question = Question(Job("new", local_run=run), AWS, method=Method.SCALA_OPT)
    found = answer(question, load(), database)
    # 0.95 · 450 Mbit/s / 160 Mbit/s = 2.7
    assert found.ranking[0].configuration.workers == 2
    with pytest.raises(ScenarioError, match=r"how much network one m4\.xlarge uses is not known"):
        answer(Question(Job("new"), AWS, method=Method.SCALA_OPT), load(), database)
    with pytest.raises(ScenarioError, match="parameter server; name its type"):
        answer(Question(Job("new"), Market("us-central1"), method=Method.COST_OPT), load(), database)


@pytest.mark.slow
def test_the_verbs_work_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, runs, database = tmp_path / "job.yaml", tmp_path / "runs.csv", str(tmp_path / "m.duckdb")
    job.write_text("name: demo\nbatch: 32\n")
    runs.write_text(
        "job,instance,workers,time_s,price_usd_h,vcpus,memory_gib\ndemo,n1-standard-4,2,5000,0.38,4,15\n"
    )
    assert call(["measurements", "import", str(runs), "--measurements", database]) == 0
    assert call(["measurements", "list", "--measurements", database, "--format", "csv"]) == 0
    assert "demo,1,0,1" in capsys.readouterr().out
    verb = ["recommend", str(job), "--measurements", database, "--workers", "1,2,4", "--format", "csv"]
    assert call([*verb, "--by", "time", "--deadline", "6h", "--budget", "5", "--top", "30"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("rank,configuration,time_h")
    assert "2 × n1-standard-4" in out
    assert call([*verb, "--deadline", "soon"]) == 2
    assert "'soon' is no duration" in capsys.readouterr().err
    assert call([*verb, "--budget-per-hour", "0.01"]) == 2
    assert "below the cheapest cluster" in capsys.readouterr().err
    assert call([*verb, "--method", "oracle"]) == 2
    assert "no such recommender" in capsys.readouterr().err
