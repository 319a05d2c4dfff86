"""`twinbed recommend --search` from the command line: the rehearsal, and what is refused."""

import json
import os
import subprocess
import sys

import pytest

from lab.cli.main import call

TYPES = ("--types", "n1-standard-4,e2-standard-16", "--workers", "1,2")


def test_small_matrices_do_not_get_a_thread_for_each_core():
    code = (
        "import os; from lab.cli.recommend import _load_algebra; _load_algebra(); import scipy.linalg\n"
        "print(len(os.listdir('/proc/self/task')), 'OPENBLAS_NUM_THREADS' in os.environ)"
    )
    free = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "OPENBLAS_"))}
    ended = subprocess.run([sys.executable, "-c", code], env=free, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["1", "False"]


@pytest.mark.slow
def test_a_rehearsal_prints_each_trial_and_stores_nothing(tmp_path, capsys):
    store = tmp_path / "m.duckdb"
    given = ("--search", "--backend", "twin", "--method", "ernest", "--measurements", str(store))
    assert call(["recommend", "text_bag", *given, *TYPES, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert len(result["rows"]) == result["facts"]["trials"] == 4
    assert 0 < result["facts"]["spent ($)"] < 1
    assert result["facts"]["measured"] is True
    assert result["facts"]["take"] in {row["configuration"] for row in result["rows"]}
    said = [line.split(":")[0] for line in err.splitlines()]
    assert said == [f"trial {number}" for number in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert not store.exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--cap", "3"), "are for --search; add it"),
        (("--trials", "3"), "are for --search; add it"),
        (("--search", "--backend", "gcloud"), "give --real and --cap USD"),
        (("--search", "--backend", "gcloud", "--real"), "limit it with --cap USD"),
        (("--search", "--backend", "gcloud", "--real", "--cap", "2"), "needs --zone and --template"),
        (
            ("--search", "--backend=gcloud", "--real", "--cap=2", "--zone=us-east1-b", "--template=mine"),
            "--zone us-east1-b is not in us-central1, whose prices --cap counts",
        ),
        (("--search", "--backend", "gcloud", "--batches", "8,16"), "batches cannot be compared; search with"),
        (("--search", "--backend", "gcloud", "--method", "scavenger"), "batches cannot be compared; search"),
        (("--types", ""), "--types '': names nothing"),
        (("--types", " ,"), "--types ' ,': names nothing"),
        (
            ("--search", "--backend", "twin", "--trial-limit", "5"),
            "--trial-limit 5: expected a number and a unit",
        ),
    ],
)
def test_what_is_refused_is_refused_in_a_line(given, message, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("TWINBED_MEASUREMENTS", str(tmp_path / "m.duckdb"))
    assert call(["recommend", "text_bag", *given]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_batches_are_compared_on_google_cloud_if_their_noise_is_known(tmp_path, capsys):
    table, store = tmp_path / "runs.csv", str(tmp_path / "m.duckdb")
    table.write_text(
        "job,instance,workers,time_s,price_usd_h,vcpus,memory_gib,batch,noise\n"
        "text_bag,n1-standard-4,1,60,0.19,4,15,8,100\n"
    )
    assert call(["measurements", "import", str(table), "--measurements", store]) == 0
    given = ("--search", "--backend", "gcloud", "--batches", "8,16", "--measurements", store)
    assert call(["recommend", "text_bag", *given]) == 2
    assert "give --real and --cap USD" in capsys.readouterr().err
