"""The table of measured jobs as examples, and the verbs on it."""

import csv
import json
import re
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
pytest.importorskip("xgboost", reason="xgboost is not installed: pip install 'twinbed[cloud]'")

from control.jobs import Configuration, LocalRun, Objective
from control.predictor import physical
from control.predictor.explanation import contributions
from control.predictor.training import Schedule
from control.predictor.tried_network import train_network
from lab.cli import predict as predict_verb
from lab.cli.main import call
from lab.cloud.input import data_set, local_run_file
from lab.cloud.input.data_set import COLUMNS
from lab.cloud.run import predicting
from traces.catalogue.catalogue import load
from twinbed import ScenarioError, TraceError

VCPUS = {"n1-standard-4": 4, "n1-standard-8": 8, "e2-standard-16": 16, "e2-highmem-8": 8}
JOBS = ("a", "b", "c", "d")


def local_run(work):
    series = np.full((20, 3), 0.5)
    return LocalRun(
        1.0, series, series * 1e8, series * 1e6, series * 1e6, np.full(10, 0.1 * work), 32, int(2e5 * work),
        ("Linear", "ReLU"),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """Four jobs on twenty clusters each, by the law of the twin and some noise; one that failed."""
    rng = np.random.default_rng(0)
    with (tmp_path / "runs.csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, restval="")
        rows.writeheader()
        for index, name in enumerate(JOBS):
            work = 1.0 + index
            (tmp_path / f"{name}.yaml").write_text(
                f"name: {name}\nbatch: 32\nsamples: 1e6\nfeatures: {{epochs: {index}}}\n"
            )
            path = tmp_path / f"{name}.local-run.parquet"
            local_run_file.write(local_run(work), ("master", "worker-1", "worker-2"), {}, path)
            for instance, vcpus in VCPUS.items():
                for workers in (1, 2, 3, 4, 6):
                    step_s = (
                        48
                        * (0.05 * work / vcpus + 0.002 * (workers - 1))
                        * np.exp(0.02 * rng.standard_normal())
                    )
                    rows.writerow(
                        {
                            "job": name, "instance": instance, "workers": workers, "batch": 32, "steps": 20,
                            "step_mean_s": f"{step_s:.6f}", "outcome": "ok", "scale": "1/48",
                        }
                    )  # fmt: skip
        rows.writerow(
            {"job": "a", "instance": "n1-highcpu-16", "workers": 1, "batch": 64, "outcome": "failed"}
        )
    return tmp_path


@pytest.fixture
def examples(folder):
    return data_set.load(folder / "runs.csv", folder, load())


@pytest.fixture
def few_folds(monkeypatch):
    """Every fold of the judging trains a model, which has folds of its own: a few of each do here."""
    monkeypatch.setattr(predicting, "FOLDS", 2)
    monkeypatch.setattr(physical, "_FOLDS", 3)


def test_a_run_becomes_a_job_s_time_and_its_bill(examples):
    assert len(examples) == 80
    row = int(np.flatnonzero((examples.job == 0) & (examples.candidates.count == 1))[0])
    assert examples.candidates.configuration(row) == Configuration("n1-standard-4", 1, 32)
    # 31,250 steps of about 12.5 ms and Vertex's start-up.
    assert examples.time_s[row] == pytest.approx(180 + 31_250 * 0.0125, rel=0.08)
    price = examples.candidates.price_usd_h[row]
    assert price > 0.19 * 1.15
    # Vertex does not bill its start-up, and rounds up to 30 s.
    billed_s = 30 * np.ceil((examples.time_s[row] - 180) / 30)
    assert examples.cost_usd[row] == pytest.approx(price * billed_s / 3600)
    assert np.corrcoef(np.log(examples.prior_time_s), np.log(examples.time_s))[0, 1] > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("1/48", "1/0", 1), "row 2: "),
        (lambda text: text.replace("1/48", "x", 1), "row 2: "),
        (lambda text: re.sub("^a,", ",", text, count=1, flags=re.M), "row 2: job: is empty"),
        (lambda text: text.replace("n1-standard-4", "", 1), "row 2: instance: is empty"),
        (lambda text: text.replace(",ok,", ",bad,"), "no successful run"),
        (lambda text: "x" + text, "no column 'job'; a table of measured jobs has job, instance,"),
        (
            lambda text: "\n".join(f"{line},gpus" for line in text.split()),
            "unknown column 'gpus'; a table of",
        ),
        (lambda text: text.replace("n1-standard-4", "z9", 1), "no instance type 'z9'"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(folder, change, message):
    table = folder / "runs.csv"
    table.write_text(change(table.read_text()))
    with pytest.raises((ScenarioError, TraceError), match=message):
        data_set.load(table, folder, load())


def test_a_run_that_cannot_be_learned_from_is_named_by_its_row_in_the_table(folder):
    head, *lines = (folder / "runs.csv").read_text().splitlines(keepends=True)
    # The header and a failed run come before the 20 runs of each job.
    (folder / "runs.csv").write_text("".join([head, lines[-1], *lines[:-1]]))
    (folder / "c.local-run.parquet").unlink()
    rows = data_set.load(folder / "runs.csv", folder, load())
    with pytest.raises(ScenarioError, match=r"^row 43 \(job c\): the analytic model, .* local run"):
        physical.train_physical(Objective.TIME, rows, 0)
    known = physical.train_physical(Objective.TIME, rows.take(rows.job < 2), 0)
    with pytest.raises(ScenarioError, match=r"^row (4[3-9]|5\d|6[0-2]) \(job c\): "):
        contributions(known, rows.take(rows.job == 0).take(np.array([0])), rows, np.random.default_rng(0))
    asked = data_set.one(folder / "c.yaml", Configuration("n1-standard-8", 2), load(), "us-central1")
    with pytest.raises(ScenarioError, match=r"^job c: the analytic model"):
        known.predict(asked)


@pytest.mark.slow
def test_train_then_explain(folder, capsys, monkeypatch):
    where = ["--runs", str(folder / "runs.csv"), "--jobs", str(folder), "--format", "json"]
    models = folder / "models"
    assert call(["predict", "train", "--out", str(models), *where]) == 0
    trained = json.loads(capsys.readouterr().out)["rows"]
    assert [row["by"] for row in trained] == ["cost", "time"]
    assert all(row["median_error_applications"] < 0.2 for row in trained)
    model = str(models / "time.twinbed-predictor")
    asked = [model, str(folder / "b.yaml"), "--type", "n1-standard-8", "--workers", "2"]
    bars = []
    monkeypatch.setattr(predict_verb, "Bar", lambda *_, **told: bars.append(told) or nullcontext())
    assert call(["predict", "explain", *asked, *where]) == 0
    assert bars == [{"wanted": True, "preparing": "explaining"}]
    shown = json.loads(capsys.readouterr().out)
    facts = shown["facts"]
    assert facts["from"] < facts["time (h)"] < facts["to"]
    assert facts["like what was learned from"] is True
    assert np.prod([row["factor"] for row in shown["rows"]]) == pytest.approx(facts["time (h)"], rel=1e-6)
    assert call(["predict", "explain", model, "images_vgg", "--type", "n1-standard-8", *where]) == 0
    assert json.loads(capsys.readouterr().out)["facts"]["job"] == "images_vgg"
    there = [model, str(folder / "b.yaml"), "--type", "m5.xlarge", "--region"]
    assert call(["predict", "explain", *there, "us-east-1", *where]) == 0
    shown = json.loads(capsys.readouterr().out)["facts"]
    assert (shown["cluster"], shown["region"]) == ("1 × m5.xlarge", "us-east-1")
    assert call(["predict", "explain", *there, "us-west-9", *where]) == 2
    assert "no region 'us-west-9'" in capsys.readouterr().err
    far = [model, str(folder / "b.yaml"), "--type", "n1-standard-8", "--workers", "5000"]
    assert call(["predict", "explain", *far, *where]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["facts"]["like what was learned from"] is False
    assert "as Vertex" not in " ".join(shown["notes"])
    paid = [str(models / "cost.twinbed-predictor"), *asked[1:]]
    assert call(["predict", "explain", *paid, *where]) == 0
    bill = "Cost as Vertex AI custom training bills it: machines with a fee of 15% and a disk of 100 GiB each"
    assert bill in " ".join(json.loads(capsys.readouterr().out)["notes"])
    assert call(["predict", "explain", *asked]) == 2
    assert f"{model}: trained on another table than" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("few_folds")
def test_evaluate_judges_by_both_protocols(folder, capsys):
    where = ["--runs", str(folder / "runs.csv"), "--jobs", str(folder), "--format", "json"]
    assert call(["predict", "evaluate", "--models", "physical,linear,logistic", *where]) == 0
    rows = {
        (row["model"], row["by"], row["left_out"]): row for row in json.loads(capsys.readouterr().out)["rows"]
    }
    assert len(rows) == 12
    ours, linear = (rows[name, "time", "applications"] for name in ("physical", "linear"))
    assert ours["median_error"] < linear["median_error"]
    assert ours["coverage"] > 0.7
    assert rows["logistic", "time", "applications"]["rmse"] is None
    assert 0 < ours["found"] <= ours["best"] <= 5 * len(JOBS)
    assert ours["good"] <= len(JOBS)


@pytest.mark.slow
def test_a_network_is_trained_and_explained(folder, capsys, monkeypatch):
    short = partial(train_network, schedule=Schedule(epochs=3))
    monkeypatch.setattr(predicting, "train_network", short)
    where = ["--runs", str(folder / "runs.csv"), "--jobs", str(folder), "--format", "json"]
    assert call(["predict", "train", "--model", "network", "--out", str(folder), *where]) == 0
    trained = json.loads(capsys.readouterr().out)["rows"]
    assert [row["model"] for row in trained] == ["network", "network"]
    asked = [str(folder / "b.yaml"), "--type", "n1-standard-8", "--workers", "2"]
    assert call(["predict", "explain", str(folder / "time.twinbed-predictor"), *asked, *where]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["facts"]["from"] < shown["facts"]["time (h)"] < shown["facts"]["to"]
    product = np.prod([row["factor"] for row in shown["rows"]])
    assert product == pytest.approx(shown["facts"]["time (h)"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("few_folds")
def test_importance_names_groups_by_what_their_loss_costs(folder, capsys):
    where = ["--runs", str(folder / "runs.csv"), "--jobs", str(folder), "--format", "json"]
    assert call(["predict", "importance", *where]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[0]["group"] == "analytic model"
    assert {"disk", "workers' CPU", "order of layers"} <= {row["group"] for row in rows}


def test_a_model_that_there_is_not(capsys, tmp_path):
    assert call(["predict", "evaluate", "--models", "oracle"]) == 2
    assert "no model 'oracle'; there are physical" in capsys.readouterr().err
    assert call(["predict", "evaluate", "--models", ","]) == 2
    assert "--models ',': names nothing" in capsys.readouterr().err
    assert call(["predict", "train", "--model", "forest", "--out", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()
    assert "no model 'forest' can be stored; there are physical, network" in capsys.readouterr().err
    assert call(["predict", "importance", "--model", "logistic"]) == 2
    assert "logistic predicts a class" in capsys.readouterr().err
