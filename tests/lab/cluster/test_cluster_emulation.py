"""A cluster that this machine stands for: what the twin takes from the calibration, and the comparison."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lab.ask.scenario import expand, load
from lab.cluster.calibrate.values import load_calibration, write
from lab.cluster.real.backend import trainings
from lab.cluster.run.runner import Drawn
from lab.cluster.validate.both import Compared, agree, asked_alike
from twinbed import ScenarioError

SPEC = expand(load("cluster_testbed"))[0]


def test_a_start_an_end_and_a_restart_count_as_many_times_as_time_is_compressed():
    timing = Drawn(SPEC.scenario.cluster, 0).timing(SPEC.calibration)
    values = SPEC.calibration.values
    assert timing.start_s == pytest.approx(60 * values["times.start_s"].value)
    assert timing.end_s == pytest.approx(60 * values["times.end_s"].value)
    assert timing.restart_s == pytest.approx(60 * values["times.restart_s"].value)
    assert (timing.cores, timing.gpu_cores) == (2.0, 0.1)
    assert timing.beside_starts == values["machine.beside_starts"].value


def test_training_is_as_long_as_its_duration_compressed():
    asked = SPEC.scenario.cluster
    jobs = Drawn(asked, 0).jobs
    programs = trainings(asked, asked.emulation, jobs, SPEC.calibration)
    for number, program in enumerate(programs):
        rate = SPEC.calibration.values[f"training.{jobs.models[number]}_x{program.processes}"].value
        assert program.steps / (0.1 * rate) == pytest.approx(jobs.workload.steps[number] / 60, rel=0.05)
        assert str(program.steps) in program.command


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("cluster.emulation=null", "cluster.emulation: missing; describe how"),
        ("cluster.emulation.compression=20000", "job 0 would train"),
        ("cluster.synthetic.gpus=[4]", "is not calibrated"),
        ("cluster.emulation.slurm=decides", "Slurm decides by fifo-backfill, not tiresias"),
        ("policies=[hadar-e]", "policy hadar-e: real jobs have no copies"),
        ("cluster.models={}", "name jobs that train"),
        ("cluster.emulation.gpu_cores=0", "greater than or equal to 0.02"),
        ("calibration=some.toml", "some.toml"),
    ],
)
def test_what_the_testbed_cannot_do_is_said_in_one_line(twinbed, change, problem):
    cell = (
        "--set", "policies=[tiresias]", "--set", "vary={}", "--set", "cluster.round_s=2000000", "--backend",
        "testbed",
    )  # fmt: skip
    assert problem in twinbed("run", "cluster_testbed", *cell, "--set", change).refused


def test_rounds_shorter_than_a_restart_are_refused():
    asked = SPEC.scenario.cluster.model_copy(update={"round_s": 60.0})
    with pytest.raises(ScenarioError, match=r"cluster\.round_s: 60 s, and a restart takes"):
        Drawn(asked, 0).timing(SPEC.calibration)


def test_the_shipped_calibration_is_written_as_it_is_read(tmp_path):
    shipped = load_calibration()
    (tmp_path / "again.toml").write_text(write(shipped, "head"))
    again = load_calibration(str(tmp_path / "again.toml"))
    assert again.values == shipped.values


def test_two_settings_of_a_users_own_scheduler_are_two_questions():
    asked = SPEC.resolved()
    run, other = (
        stored({**asked, "policy": {**asked["policy"], "parameters": given}})
        for given in (asked["policy"]["parameters"], {"patience": 2})
    )
    assert asked_alike(run, SPEC)
    assert not asked_alike(other, SPEC)


def stored(spec, **changed):
    """A stored run, as far as `asked_alike` looks at it. changed: calibrated values that it had."""
    values = {key: value.value for key, value in SPEC.calibration.values.items()} | changed
    about = {"values": {key: {"value": value} for key, value in values.items()}}
    return SimpleNamespace(manifest={"spec": spec, "calibration": about})


def test_a_run_under_other_speeds_has_other_steps_and_is_another_question():
    assert asked_alike(stored(SPEC.resolved()), SPEC)
    assert asked_alike(stored(SPEC.resolved(), **{"times.start_s": 99.0}), SPEC)
    assert not asked_alike(stored(SPEC.resolved(), **{"training.audio_cnn_x1": 99.0}), SPEC)


def test_the_twin_agrees_within_a_tenth_and_in_the_order():
    row = Compared("", "fifo", 40, 105.0, (100.0, 98.0), 0, 0, 4.0, 5.0, 1, 1)
    assert agree([row])
    assert not agree([replace(row, twin_s=120.0)])
    assert not agree([replace(row, twin_place=2)])


def test_calibrating_is_offered(twinbed):
    refused = twinbed("calibrate", "--pillar", "nothing").refused
    assert refused.endswith("known are containers, fabric, cluster")
    assert json.dumps(sorted(SPEC.calibration.values)).count("_x2") == 7
