"""A cluster that this machine stands for: what the twin takes from the calibration, and the comparison."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.cluster import Timing
from control.scheduler import make
from lab.ask.calibration import Value
from lab.ask.scenario import expand, load, with_overrides
from lab.cluster.calibrate.values import load_calibration, speed, spread, write
from lab.cluster.real import backend
from lab.cluster.real.backend import trainings
from lab.cluster.run.runner import Drawn
from lab.cluster.validate.both import DRAWS, Compared, agree, asked_alike, compared, drawn, result
from lab.runs.store import RunStore
from tests.control.scheduler.worlds import cluster
from twin.cluster.simulation import simulate
from twinbed import ScenarioError

SPEC = expand(load("cluster_testbed"))[0]


def test_a_start_an_end_and_a_restart_count_as_many_times_as_time_is_compressed():
    timing = Drawn(SPEC.scenario.cluster, 0).timing(SPEC.calibration)
    values = SPEC.calibration.values
    assert timing.start_s == pytest.approx([60 * values[f"times.start_x{gpus}_s"].value for gpus in (1, 2)])
    assert timing.end_s == pytest.approx(60 * values["times.end_s"].value)
    assert timing.restart_s == pytest.approx(
        [60 * values[f"times.restart_x{gpus}_s"].value for gpus in (1, 2)]
    )
    assert timing.leave_s == pytest.approx([60 * values[f"times.leave_x{gpus}_s"].value for gpus in (1, 2)])
    assert timing.spread == spread(SPEC.calibration) > 0
    assert (timing.cores, timing.gpu_cores) == (2.0, 0.1)
    assert timing.beside_starts == values["machine.beside_starts"].value
    steps_s = [1 / speed(SPEC.calibration, "images_vgg", gpus, 0.1) for gpus in (1, 2)]
    vgg = np.array(Drawn(SPEC.scenario.cluster, 0).jobs.models) == "images_vgg"
    assert set(timing.step_s[vgg]) == {60 * steps_s[0], 60 * steps_s[1]}


def test_training_is_as_long_as_its_duration_compressed():
    asked = SPEC.scenario.cluster
    jobs = Drawn(asked, 0).jobs
    programs = trainings(asked, asked.emulation, jobs, SPEC.calibration)
    for number, program in enumerate(programs):
        per_s = speed(SPEC.calibration, jobs.models[number], program.processes, 0.1)
        assert program.steps / per_s == pytest.approx(jobs.workload.steps[number] / 60, rel=0.05)
        assert str(program.steps) in program.command


def saving(core_s: float):
    """Return the shipped calibration with saves of so much CPU time."""
    values = {
        key: Value(core_s, "core s", "made up") if key.startswith("saves.") else value
        for key, value in SPEC.calibration.values.items()
    }
    return replace(SPEC.calibration, values=values)


def test_a_job_pays_for_each_save_before_its_last_step():
    asked = SPEC.scenario.cluster
    drawn, works_cores = Drawn(asked, 0), 0.1 - SPEC.calibration.values["machine.lost_cores"].value
    with_saves = drawn.with_saves(saving(0.02)).steps
    programs = trainings(asked, asked.emulation, drawn.jobs, SPEC.calibration)
    for program, steps, more in zip(programs, drawn.jobs.workload.steps, with_saves, strict=True):
        saves = (program.steps - 1) // program.every
        nearly = min(program.steps % program.every, -program.steps % program.every) < 2
        assert nearly or more - steps == pytest.approx(saves * 60 * 0.02 / works_cores)


@given(st.integers(0, 2**32 - 1), st.floats(60.0, 3000.0))
@settings(max_examples=20)
def test_saves_that_cost_nothing_leave_the_jobs_as_they_are_to_the_bit(seed, checkpoint_s):
    drawn = Drawn(SPEC.scenario.cluster.model_copy(update={"checkpoint_s": checkpoint_s}), seed)
    assert np.array_equal(drawn.with_saves(saving(0.0)).steps, drawn.jobs.workload.steps)
    plain = Drawn(drawn.asked.model_copy(update={"emulation": None}), seed)
    assert plain.with_saves(saving(0.02)) is plain.jobs.workload


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "gavel"])
def test_preemptions_neither_add_nor_save_a_jobs_saves(policy):
    drawn, where = Drawn(SPEC.scenario.cluster, 0), cluster((0, 2), (0, 2))
    load = drawn.with_saves(saving(0.02))
    load = replace(load, throughput=np.ones((len(load), 1, 2)))
    timing = replace(drawn.timing(SPEC.calibration), cores=np.inf, end_s=0.0, step_s=0.0, round_s=300.0)
    done = simulate(where, load, make(policy, where, 0), timing)
    assert (done.left_steps == 0).all()
    assert done.held_s - done.restart_s == pytest.approx(load.steps)
    assert done.preemptions.any() == (policy != "fifo")


def test_a_save_costs_more_time_where_less_of_a_gpu_emulates_it():
    asked = SPEC.scenario.cluster
    less = asked.emulation.model_copy(update={"gpu_cores": 0.05})
    more_s, less_s = (
        Drawn(asked.model_copy(update={"emulation": given}), 0).with_saves(saving(0.02)).steps
        for given in (less, asked.emulation)
    )
    assert (more_s >= less_s).all()
    assert (more_s > less_s).any()


def test_a_slow_gpus_quota_gives_the_speed_that_the_scenario_states(monkeypatch, tmp_path):
    class Asked(Exception):  # noqa: N818 - it is no error
        pass

    def carry_out(*_given, quota_cores, until, **_more):
        raise Asked([quota_cores(0, rate) for rate in (1.0, 0.5)], until)

    monkeypatch.setattr(backend, "carry_out", carry_out)
    monkeypatch.setattr(backend, "Gangs", nullcontext)
    watched = replace(SPEC, scenario=with_overrides(SPEC.scenario, ["cluster.watched.last=5"]))
    with pytest.raises(Asked) as asked:
        backend.run(watched, RunStore(tmp_path), 0, None)
    (full, half), until = asked.value.args
    assert until == 5  # as the twin's run
    assert full == pytest.approx(0.1)
    assert speed(SPEC.calibration, "text_bag", 1, half) == pytest.approx(
        0.5 * speed(SPEC.calibration, "text_bag", 1, full)
    )


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
    assert asked_alike(stored(SPEC.resolved(), **{"times.start_x1_s": 99.0}), SPEC)
    assert not asked_alike(stored(SPEC.resolved(), **{"training.audio_cnn_x1": 99.0}), SPEC)


def test_the_twin_agrees_within_a_tenth_and_in_the_order():
    row = Compared("", "fifo", 40, (103.0, 107.0), (100.0, 98.0), 0, 0, 4.0, 5.0, 1.0, 1, 1)
    assert agree([row])
    assert not agree([replace(row, twin_s=(120.0,))])
    assert not agree([replace(row, twin_place=2)])


def test_calibrating_is_offered(twinbed):
    refused = twinbed("calibrate", "--pillar", "nothing").refused
    assert refused.endswith("known are containers, fabric, cluster")
    for section in ("training", "saves"):
        assert sum(key.startswith(section) and key.endswith("_x2") for key in SPEC.calibration.values) == 7


def test_the_twin_draws_the_times_of_starts_anew_and_asks_the_same_question(tmp_path):
    scenario = with_overrides(load("cluster_testbed"), ["policies=[tiresias]", "vary={}"])
    runs = drawn(scenario, RunStore(tmp_path), None, fresh=True)
    (row,) = compared(scenario, runs, runs[:1])
    assert len(row.twin_s) == len(set(row.twin_s)) == DRAWS
    assert row.testbed_s == row.twin_s[:1]


@pytest.mark.parametrize("policy", ["fifo", "tiresias"])
def test_the_real_training_speed_is_seen_in_the_jobs_that_ran_at_one_speed(policy):
    where = cluster((0, 2), (1, 2))
    load = replace(
        Drawn(SPEC.scenario.cluster, 0).jobs.workload, throughput=np.ones((40, 2, 2)) * [[1.0], [0.5]]
    )
    done = simulate(where, replace(load, throughput=1.2 * load.throughput), make(policy, where, 0), Timing())
    assert backend.training_speed(where, load, done, 0.0) == pytest.approx(1.2)
    assert backend.training_speed(where, load, replace(done, spans=None), 0.0) is None
    timing = Timing(start_s=30.0, step_s=10.0)
    done = simulate(where, load, make(policy, where, 0), timing)
    assert backend.training_speed(where, load, done, timing.step_s) == pytest.approx(1.0)


def test_a_machine_that_trains_at_another_speed_than_calibrated_is_named():
    row = Compared("", "gavel", 40, (103.0,), (100.0,), 0, 0, 4.0, 5.0, 1.12, 1, 1)
    (_, note) = result([row]).notes
    assert note.startswith(
        "gavel: the real jobs trained at 112% of the calibrated speed; measure this machine"
    )
    assert len(result([replace(row, training_speed=0.97)]).notes) == 1
