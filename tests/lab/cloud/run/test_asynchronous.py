"""spotDNN for users: the source's plan from a job file, again after a revocation, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from control.recommender.spotdnn import Goal, Training, WorkerKind, predict
from control.recommender.spotdnn_fit import compute_s
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
        f"quota: {changes.get('quota', 5)}, spot_usd_h: {changes.get('spot', spot)}, "
        f"on_demand_usd_h: {demand}}}"
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


PROFILED = """
name: resnet
asynchronous:
  push_mb: 11.54
  server_mb_s: 600
  worker_mb_s: 342
  memory: [60.0, -80.0]
  types:
    small: {memory_gib: 16.0, alone_s: 1.0, spot_usd_h: 0.3, on_demand_usd_h: 1.0}
    large: {memory_gib: 16.0, gpus: 4, alone_s: 1.1, spot_usd_h: 1.2, on_demand_usd_h: 4.0}
  profiles: [%s]
"""


def profiled(folder: Path, *, noise: bool = False) -> str:
    """A job file with profiles that follow the equations with known constants."""
    gamma = (800.0, -0.2, 2500.0, 0.3, 0.5)
    training = Training(11.54, 600, 342, 10_000, (0.3, -0.2), gamma)
    kinds = [
        WorkerKind(name, 1.0, 9, 512 * gpus, gpus, compute_s(training, gpus, alone))
        for name, gpus, alone in (("small", 1, 1.0), ("large", 4, 1.1))
    ]
    rows = []
    for counts in ((1, 1), (2, 2), (4, 3)):
        shown = predict(training, kinds, np.array([counts]), Goal(1.0, 1.0))
        pushes = np.arange(100.0, 3000.0, 100.0)
        loss = training.loss(shown.samples, shown.convergence, shown.workers, pushes)
        loss = 1 + pushes % 200 if noise else loss
        losses = ", ".join(f"[{push:.0f}, {value:.6f}]" for push, value in zip(pushes, loss, strict=True))
        workers = f"{{small: {counts[0]}, large: {counts[1]}}}"
        rows.append(
            f"{{workers: {workers}, bandwidth_mb_s: {shown.bandwidth_mb_s[0]:.4f}, losses: [{losses}]}}"
        )
    path = folder / "profiled.yaml"
    path.write_text(PROFILED % ", ".join(rows))
    return str(path)


def test_constants_are_fitted_to_profiles_and_shown(tmp_path: Path) -> None:
    asked = ("--method", "spotdnn", "--loss", "0.9", "--deadline", "2h")
    done = CliRunner().invoke(app, ["recommend", profiled(tmp_path), *asked, "--format", "json"])
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)["facts"]
    assert facts["contention"] == "0.3, -0.2 (R² 1.00)"
    assert facts["loss curve"].endswith("(R² 1.00)")


def test_profiles_that_determine_nothing_are_refused(tmp_path: Path) -> None:
    asked = ("--method", "spotdnn", "--loss", "0.9", "--deadline", "2h")
    done = CliRunner().invoke(app, ["recommend", profiled(tmp_path, noise=True), *asked])
    said = done.output + str(done.exception)
    assert "asynchronous.profiles: they do not determine gamma" in said
    assert "R² must be at least 0.5" in said


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("memory: [60.0, -80.0]", "pcie_mb_s: 9.0", "types.small.samples: missing; or give its memory_gib"),
        ("push_mb: 11.54", "push_mb: 11.54\n  gamma: [1, 0, 1, 1]", "asynchronous.gamma"),
        ("losses: [[100,", "losses: [[0,", "profiles.losses: a number of pushes is not above 0"),
        ("{workers: {small: 1", "{workers: {smal: 1", "profiles.workers: no type 'smal'; there are small"),
    ],
)
def test_a_section_that_lacks_something_names_it(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = Path(profiled(tmp_path))
    path.write_text(path.read_text().replace(old, new))
    asked = ("--method", "spotdnn", "--loss", "0.9", "--deadline", "2h")
    done = CliRunner().invoke(app, ["recommend", str(path), *asked])
    assert done.exit_code != 0
    assert message in done.output + str(done.exception)


@pytest.mark.parametrize(
    ("changes", "words", "message"),
    [
        ({"bare": "x"}, ("--loss", "0.8", "--deadline", "1h"), "no section `asynchronous`"),
        ({"alone_s": "0.001"}, ("--loss", "0.8", "--deadline", "1h"), "is less than its pushes take"),
        ({}, ("--loss", "0.8"), "needs --loss and --deadline"),
        ({}, ("--loss", "0.8", "--deadline", "1h", "--workers", "2"), "give no --by, --search, "),
        (
            {"spot": "null"},
            ("--loss", "0.8", "--deadline", "1h"),
            "types.g4dn.4xlarge.spot_usd_h: missing, and",
        ),
        ({"quota": "2000000"}, ("--loss", "0.8", "--deadline", "1h"), "quota: Input should be less than"),
        ({}, ("--loss", "0.8", "--deadline", "1h", "--running", "g3=x"), "--running g3=x: expected"),
        ({}, ("--loss", "0.8", "--deadline", "1h", "--running", "t4=1"), "no type t4 runs; types are g3.16"),
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
