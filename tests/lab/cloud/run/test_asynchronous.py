"""spotDNN for users: the source's plan from a job file, again after a revocation, and what is refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lab.cli.main import app

TYPES = {"g4dn.4xlarge": (1024, 1, 750, 0.3612, 1.2), "g3.8xlarge": (1024, 2, 1018, 0.684, 2.28),
         "g3.16xlarge": (2048, 4, 1995, 1.37, 4.56), "p2.8xlarge": (8192, 8, 2115, 2.16, 7.2)}  # fmt: skip
JOB = """
name: resnet
asynchronous:
  {push_mb: 11.54, server_mb_s: 1200, worker_mb_s: 142, contention: [0.8, -1.92],
   gamma: [876.5, -0.2, 2507.6, 1.0, 0.5], unequal: false, types: %s}
"""


def job(folder: Path, **changes: str) -> str:
    workers = ", ".join(
        f"{name}: {{samples: {samples}, gpus: {gpus}, alone_s: {changes.get('alone_s', samples / per_s)}, "
        f"quota: 5, spot_usd_h: {spot}, on_demand_usd_h: {demand}}}"
        for name, (samples, gpus, per_s, spot, demand) in TYPES.items()
    )
    path = folder / "resnet.yaml"
    path.write_text(JOB % f"{{{workers}}}" if not changes.get("bare") else "name: resnet")
    return str(path)


def recommend(*words: str) -> Result:
    return CliRunner().invoke(app, ["recommend", *words, "--format", "csv"], catch_exceptions=False)


def test_the_plan_of_the_source_comes_from_a_job_file(tmp_path: Path) -> None:
    done = recommend(job(tmp_path), "--method", "spotdnn", "--loss", "0.8", "--deadline", "2600s")
    assert done.exit_code == 0
    assert "g3.8xlarge,5,5,spot,0.684" in done.output
    assert "g3.16xlarge,3,3,spot,1.37" in done.output


def test_after_a_revocation_only_the_missing_workers_are_started(tmp_path: Path) -> None:
    left = ("--running", "g3.8xlarge=5,g3.16xlarge=2", "--from-loss", "1.2")
    done = recommend(job(tmp_path), "--method", "spotdnn", "--loss", "0.8", "--deadline", "1400s", *left)
    assert done.exit_code == 0
    assert "g3.8xlarge,5,0,spot" in done.output
    assert "g3.16xlarge,2,0,spot" in done.output
    assert "g4dn.4xlarge,1,1,spot" in done.output


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({"bare": "x"}, ("--loss", "0.8", "--deadline", "1h"), "no section `asynchronous`"),
        ({"alone_s": "0.001"}, ("--loss", "0.8", "--deadline", "1h"), "is less than its pushes take"),
        ({}, ("--loss", "0.8"), "needs --loss and --deadline"),
        ({}, ("--loss", "0.8", "--deadline", "1h", "--workers", "2"), "give no --by, --search, "),
        ({}, ("--loss", "0.8", "--deadline", "1h", "--running", "g3=x"), "--running g3=x: expected"),
        ({}, ("--loss", "0.8", "--deadline", "1h", "--running", "t4=1"), "1 × t4 are running"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(
    tmp_path: Path, changes: dict[str, str], words: tuple[str, ...], message: str
) -> None:
    done = CliRunner().invoke(app, ["recommend", job(tmp_path, **changes), "--method", "spotdnn", *words])
    assert done.exit_code == 2 or message in str(done.exception)
    assert message in done.output + str(done.exception)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--loss", "0.5", "--deadline", "1h"), "loss ≤ γ5"),
        (("--loss", "0.8", "--deadline", "10m"), "cluster needs 2300 of 600 s"),
        (("--loss", "0.8", "--deadline", "2600s", "--budget", "5"), "costs 5.33 $ of 5.00 $"),
    ],
)
def test_no_plan_is_an_answer_with_its_reason(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    asked = ["recommend", job(tmp_path), "--method", "spotdnn", *words]
    done, people = (CliRunner().invoke(app, [*asked, "--format", form]) for form in ("json", "table"))
    assert done.exit_code == people.exit_code == 1
    assert reason in done.output
    assert "nothing to show" not in people.output
