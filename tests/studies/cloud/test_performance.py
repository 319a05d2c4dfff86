"""Judged data are never learned from, and the errors on public data do not change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from studies.cloud import performance, scala_opt
from studies.cloud.judged import Judged
from studies.harness import NO_DATA, Asked
from traces.catalogue import catalogue
from traces.readers import training
from traces.readers.training import MeasuredSteps, Submissions
from twin.cloud import scaling
from twin.cloud.scaling import Shape, Steps
from twin.cloud.speedup import Systems
from twinbed import ScenarioError

Data = Callable[[str], Path]


def table(count: int = 4) -> MeasuredSteps:
    """Jobs on one accelerator, on one GPU and on two and four nodes, two batch sizes."""
    rows = []
    for job in range(count):
        for nodes in (1, 2, 4):
            for batch in (8, 16, 32):
                compute, sync = 0.01 * (job + 1) * batch, 0.1 * (count - job) * nodes**0.5 * (nodes > 1)
                rows.append((f"job {job}", nodes, nodes, 1, batch, np.hypot(compute, sync)))
    job, *numbers = zip(*rows, strict=True)
    names = np.array(job, dtype=np.object_)
    gpu = np.full(names.size, "GPU", dtype=np.object_)
    return MeasuredSteps(names, names, gpu, *(np.array(values, dtype=np.float64) for values in numbers))


def test_the_model_gets_times_of_what_was_measured_only(monkeypatch: pytest.MonkeyPatch):
    handed: list[tuple[Steps, Steps]] = []
    predict = scaling.Scaling.predict

    def watched(self: scaling.Scaling, known: Steps, asked: Steps) -> np.ndarray:
        handed.append((known, asked))
        return predict(self, known, asked)

    monkeypatch.setattr(scaling.Scaling, "predict", watched)
    steps, families = performance.steps_of(table())
    errors = performance.jobs_left_out(steps, families, performance.two_nodes, [Shape(2.0, 0.1)])
    assert set(errors) == set(families)
    for known, asked in handed:
        assert np.isnan(asked.step_s).all()
        assert (~known.alone).sum() == 1
        assert known.batch[~known.alone] == 16


def test_jobs_like_the_others_are_told_exactly_and_none_sees_itself(monkeypatch: pytest.MonkeyPatch):
    learned: list[set[str]] = []
    model = performance.Scaling

    def watched(others: Steps, shape: Shape) -> scaling.Scaling:
        learned.append(set(others.job))
        return model(others, shape)

    monkeypatch.setattr(performance, "Scaling", watched)
    steps, families = performance.steps_of(table())
    errors = performance.jobs_left_out(steps, families, performance.widest, [Shape(2.0, 0.1)])
    assert [set(families) - values for values in learned] == [{name} for name in errors]
    assert max(np.abs(part.error).max() for part in errors.values()) < 0.02


def test_a_submission_is_left_out_with_all_its_rows(monkeypatch: pytest.MonkeyPatch):
    count = 60
    names = np.array([f"s{row // 2}" for row in range(count)], dtype=np.object_)
    same = np.full(count, "x", dtype=np.object_)
    sizes = np.tile([8.0, 16.0], count // 2)
    table = Submissions(same, names, same, same, same, sizes, sizes, sizes, sizes, 100 / sizes)
    asked: list[int] = []

    class Mean:
        def __init__(self, known: np.ndarray, target: np.ndarray, seed: int = 0) -> None:
            self.mean = target.mean()
            asked.append(count - target.size)

        def predict(self, known: np.ndarray) -> np.ndarray:
            assert known.shape[0] % 2 == 0
            return np.full(known.shape[0], self.mean)

    monkeypatch.setattr(performance, "Forest", Mean)
    errors = performance.parts_left_out(table, "submission")
    assert sum(asked) == count
    assert np.abs(errors["x"].error).max() < 1e-9
    assert errors["x"].inside.all()


def test_a_time_is_no_feature():
    one = np.array(["a"], dtype=np.object_)
    size = np.ones(1)
    first, second = (Submissions(one, one, one, one, one, size, size, size, size, size * t) for t in (1, 9))
    assert np.array_equal(performance.features(first), performance.features(second))


def test_data_that_is_not_there_is_said_and_no_figure_is_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for folder in (None, tmp_path):
        text = "\n".join(performance.section(folder))
        assert text.count(NO_DATA) == sum(bool(asked.files) for asked in performance.QUESTIONS.values())
        assert text.count("reached") == 1  # Llama 3's two figures are in the paper.
    performance.make(Asked(data=tmp_path, only=["nodes"]))
    assert capsys.readouterr().out == f"nodes: {NO_DATA}\n"
    with pytest.raises(ScenarioError, match="no question 'node'; there are placements"):
        performance.make(Asked(only=["node"]))


def test_a_summary_ends_with_all_points():
    a = Judged(np.array([-0.1, 0.3]), np.array([True, False]))
    b = Judged(np.array([0.5]), np.array([True]))
    rows = performance.summary({"a": a, "b": b})
    assert rows[0] == (
        "a",
        2,
        pytest.approx(0.2),
        pytest.approx(0.28),
        pytest.approx(0.1),
        pytest.approx(0.5),
    )
    assert rows[-1][:3] == ("all points", 3, pytest.approx(0.3))
    assert rows[-1][-1] == pytest.approx(2 / 3)


def test_jobs_without_a_common_placement_follow_a_plan_of_their_own():
    steps, families = performance.steps_of(table())
    placed = {"job 0": 2, "job 1": 4, "job 2": 2, "job 3": 4}
    keep = np.array([nodes in (1, placed[name]) for name, nodes in zip(steps.job, steps.nodes, strict=True)])
    errors = performance.jobs_left_out(
        steps.take(keep), families[keep], performance.widest, [Shape(2.0, 0.1)]
    )
    assert set(errors) == set(families)
    assert np.median(np.abs(performance.pooled(errors).error)) < 0.2


def test_a_speed_up_is_asked_over_the_smallest_system_and_its_submitter_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
):
    count = 40
    same = np.full(count, "x", dtype=np.object_)
    submitters = np.array([f"s{row // 2}" for row in range(count)], dtype=np.object_)
    gpus = np.tile([8.0, 16.0], count // 2)
    learned: list[int] = []

    class Linear:
        def __init__(self, others: Systems) -> None:
            learned.append(len(others))

        def log_speed_up(self, start: Systems, asked: Systems) -> np.ndarray:
            return np.log(asked.gpus / start.gpus)

    monkeypatch.setattr(performance, "SpeedUps", Linear)
    # All scale perfectly, and the work does not depend on the number.
    systems = Submissions(same, submitters, same, same, same, gpus, gpus, gpus, gpus, 100 / gpus)
    errors = performance.speed_ups(systems)
    assert errors["x"].error == pytest.approx(np.zeros(count // 2))
    assert learned == [count - 4] * performance.PARTS


def test_fc2s_network_uses_less_of_a_server_with_larger_batches_and_slower_types():
    types = catalogue.load(scala_opt.PRICES).types("ap-southeast-1")
    by_batch = [scala_opt.use_bps(types["p2.xlarge"], batch, 450e6) for batch in (128, 512, 1280)]
    assert by_batch == sorted(by_batch, reverse=True)
    assert scala_opt.use_bps(types["m4.xlarge"], 128, 450e6) < scala_opt.use_bps(
        types["c4.xlarge"], 128, 450e6
    )
    seconds = [scala_opt.run_s(types["p2.xlarge"], 128, n, 450e6, 1e5) for n in (1, 2, 6, 12)]
    assert seconds[0] == pytest.approx(2 * seconds[1])
    assert seconds[2] == seconds[3]


def test_a_gpu_that_nobody_measured_is_named():
    listing = catalogue.load(scala_opt.PRICES).price("p2.xlarge", "ap-southeast-1")
    changed = type(listing)(
        **{name: getattr(listing, name) for name in listing.__slots__} | {"gpu_model": "X"}
    )
    with pytest.raises(ScenarioError, match=r"p2\.xlarge: no latency of X is known"):
        scala_opt.work(changed, 128)


@pytest.mark.slow
def test_step_times_by_placement_from_one_probe_on_two_nodes(public_data: Data):
    folder = public_data("pollux_t4")
    steps, families = performance.steps_of(
        training.placements(folder / "pollux_placements.csv"),
        training.scalability(folder / "pollux_scalability.csv"),
    )
    errors = performance.jobs_left_out(steps, families, performance.two_nodes, [Shape(2.0, 0.1)])
    assert np.median(np.abs(performance.pooled(errors).error)) <= 0.10


@pytest.mark.slow
def test_a_profile_tells_another_accelerator(public_data: Data):
    pytest.importorskip("sklearn", reason="scikit-learn is in the extra [cloud]")
    folder = public_data("profet_cnn_aws_gpu")
    both = training.profiled(folder / "profet_latency.csv.gz", folder / "profet_tf_profile_ops_us.csv.gz")
    errors = performance.models_left_out(both, "g4dn.xlarge", "g3s.xlarge")
    assert np.median(np.abs(performance.pooled(errors).error)) <= 0.08
