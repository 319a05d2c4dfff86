"""Calibration of clusters on a made-up machine, whose speeds the calibration must find."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.ask import shipped
from lab.cluster.calibrate import measure
from lab.cluster.calibrate.values import FORM, load_calibration, quota_cores, save_s, speed, spread
from testbed.cluster.gangs import Seen
from twinbed import BackendError, ScenarioError

START_S, END_S, BESIDE = 2.0, 0.5, 0.8
LOST_CORES, SAVE_CORE_S = 0.006, 0.03
STEPS_PER_CORE_S = {name: 40.0 + 10 * place for place, name in enumerate(shipped.names("job"))}


@dataclass
class Machine:
    """Its clock, and the jobs that it runs. From the first start of job `slower_with` on, it has 0.85 of its
    speed."""

    now_s: float = 0.0
    lives: list[Life] = field(default_factory=list)
    slower_with: int = -1
    pace: float = 1.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, passed_s: float) -> None:
        speed = BESIDE if any(life.begins_s > self.now_s for life in self.lives) else 1.0
        speed *= self.pace
        self.now_s += passed_s
        for life in self.lives:
            if life.begins_s < self.now_s:
                life.train(self.now_s, speed * min(passed_s, self.now_s - life.begins_s), speed)


@dataclass
class Life:
    job: SimpleNamespace
    begins_s: float
    quota_cores: float
    gone_s: float = math.inf
    step: float = 0.0
    saving: float = 0.0
    ends_s: list[float] = field(default_factory=list)

    def train(self, now_s: float, passed_s: float, speed: float) -> None:
        """Train for a time that ends now. A save takes CPU time after every so many steps."""
        works = self.quota_cores - LOST_CORES
        step_core_s = self.job.gpus / STEPS_PER_CORE_S[self.job.name]
        core_s = passed_s * works
        while core_s > 0:
            saves = min(self.saving, core_s)
            self.saving, core_s = self.saving - saves, core_s - saves
            done = min(core_s, step_core_s - self.step)
            self.step, core_s = self.step + done, core_s - done
            if self.step == step_core_s:
                self.step = 0.0
                self.ends_s.append(now_s - core_s / works / speed)
                self.saving = SAVE_CORE_S * (len(self.ends_s) % self.job.every == 0)


class Gangs:
    """Has the jobs of a testbed on the made-up machine."""

    machine: Machine

    def __init__(self, jobs: list[SimpleNamespace]) -> None:
        self.jobs, self.lives = jobs, dict[int, Life]()

    def __enter__(self) -> Gangs:
        return self

    def __exit__(self, *_error: object) -> None:
        self.machine.lives.clear()

    def start(self, job: int, _servers: object, quota: float) -> None:
        if job == self.machine.slower_with:
            self.machine.pace = 0.85
        begins_s = self.machine.now_s + START_S * self.jobs[job].gpus
        self.lives[job] = Life(self.jobs[job], begins_s, quota)
        self.machine.lives.append(self.lives[job])

    def limit(self, job: int, quota: float) -> None:
        self.lives[job].quota_cores = quota

    def stop(self, job: int) -> None:
        self.lives[job].gone_s = self.machine.now_s + END_S
        self.machine.lives.remove(self.lives[job])

    def look(self, job: int) -> Seen:
        life = self.lives.get(job)
        if life is None:
            return Seen(0, begun=False, alive=False)
        done = min(len(life.ends_s), life.job.steps)
        if done == life.job.steps and life in self.machine.lives:
            self.stop(job)
        return Seen(done, done > 0, life.gone_s > self.machine.now_s)

    def step_ends_ns(self, job: int) -> np.ndarray:
        return (np.array(self.lives[job].ends_s) * 1e9).astype(np.int64)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(Gangs, "machine", machine, raising=False)
    monkeypatch.setattr(measure, "Gangs", Gangs)
    monkeypatch.setattr(measure, "time", machine)
    monkeypatch.setattr(
        measure,
        "training",
        lambda name, gpus, steps, every: SimpleNamespace(name=name, gpus=gpus, steps=steps, every=every),
    )
    return machine


@pytest.fixture
def calibration(machine):
    """What the calibration says of the made-up machine."""
    return measure.calibrate("made up", measure.Effort(200.0), lambda *_: None)


def test_a_calibration_finds_speeds_lost_cores_and_saves(calibration):
    values = calibration.values
    assert values["machine.lost_cores"].value == pytest.approx(LOST_CORES, rel=0.05)
    assert values["machine.beside_starts"].value == pytest.approx(BESIDE, rel=0.05)
    assert values["times.end_s"].value == pytest.approx(END_S, abs=0.1)
    for gpus in (1, 2):
        assert values[f"times.start_x{gpus}_s"].value == pytest.approx(START_S * gpus, abs=0.6)
        assert values[f"times.restart_x{gpus}_s"].value == pytest.approx(START_S * gpus, abs=0.6)
        assert values[f"times.leave_x{gpus}_s"].value == pytest.approx(END_S, abs=0.1)
    assert spread(calibration) < 0.05
    for name, per_core_s in STEPS_PER_CORE_S.items():
        for gpus in (1, 2):
            assert values[f"training.{name}_x{gpus}"].value == pytest.approx(per_core_s / gpus, rel=0.02)
            assert values[f"saves.{name}_x{gpus}"].value == pytest.approx(SAVE_CORE_S, rel=0.02)


def test_a_machine_that_became_slower_does_not_count_as_slowed_by_starts(machine):
    machine.slower_with = len(STEPS_PER_CORE_S)  # the job that starts beside the others
    values = measure.calibrate("made up", measure.Effort(200.0), lambda *_: None).values
    assert values["machine.beside_starts"].value == pytest.approx(BESIDE, rel=0.05)


def test_a_slow_machine_is_measured_until_every_job_has_saved(machine):
    machine.pace = 0.5
    values = measure.calibrate("made up", measure.Effort(9.0), lambda *_: None).values
    assert all(math.isfinite(values[f"saves.{name}_x2"].value) for name in STEPS_PER_CORE_S)


def test_a_machine_that_is_too_slow_to_see_a_save_is_refused(machine):
    machine.pace = 0.03
    with pytest.raises(BackendError, match="audio_cnn did not save; measure for longer"):
        measure.calibrate("made up", measure.Effort(9.0), lambda *_: None)


def test_a_calibration_is_written_with_all_that_it_measured(calibration, tmp_path):
    (tmp_path / "made.toml").write_text(FORM.write(calibration, measure.HEAD))
    again = load_calibration(str(tmp_path / "made.toml")).values
    assert {key: value.unit for key, value in again.items()} == {
        key: value.unit for key, value in load_calibration().values.items()
    }
    assert again["saves.text_bag_x1"].value == pytest.approx(
        calibration.values["saves.text_bag_x1"].value, rel=1e-5
    )


def test_a_calibration_of_an_older_version_is_refused_in_one_line(tmp_path):
    text = FORM.path.read_text().replace(f"schema = {FORM.schema}", "schema = 4")
    (tmp_path / "old.toml").write_text(text)
    with pytest.raises(
        ScenarioError, match=r"old\.toml: schema: 4 is not 6, .*--pillar cluster --out FILE` makes"
    ):
        load_calibration(str(tmp_path / "old.toml"))


@given(st.floats(0.02, 1), st.lists(st.floats(0.01, 4), min_size=2, max_size=2))
def test_a_quota_gives_the_speed_that_is_asked_and_more_quota_more_speed(gpu_cores, rates):
    known = load_calibration()
    quotas = [quota_cores(known, gpu_cores, rate) for rate in rates]
    full = speed(known, "text_lstm", 1, gpu_cores)
    for rate, quota in zip(rates, quotas, strict=True):
        assert speed(known, "text_lstm", 1, quota) == pytest.approx(rate * full)
    assert (rates[0] < rates[1]) == (quotas[0] < quotas[1]) or math.isclose(*rates)
    assert quota_cores(known, gpu_cores, 1.0) == pytest.approx(gpu_cores)


def test_a_quota_of_which_nothing_is_left_is_refused():
    known, refused = load_calibration(), r"gpu_cores: of 0\.001 cores, .* are lost .*; give more$"
    with pytest.raises(ScenarioError, match=refused):
        speed(known, "text_lstm", 1, 0.001)
    with pytest.raises(ScenarioError, match=refused):
        save_s(known, "text_lstm", 1, 0.001)


def test_a_save_that_was_not_measured_costs_nothing():
    assert save_s(load_calibration(), "of_mine", 1, 0.1) == 0.0


def test_too_few_steps_to_see_a_save_are_refused(monkeypatch, calibration):
    with pytest.raises(
        BackendError, match=r"^\w+ did not save; measure for longer, or on a quieter machine$"
    ):
        measure.calibrate("made up", measure.Effort(0.5), lambda *_: None)


@given(st.floats(0, 0.04))
def test_the_speed_at_half_a_quota_tells_what_is_lost(lost_cores):
    half = (measure.GPU_CORES / 2 - lost_cores) / (measure.GPU_CORES - lost_cores)
    assert measure.lost_cores(half) == pytest.approx(lost_cores, abs=1e-9)


@given(st.floats(0.5, 2.0))
def test_nothing_is_lost_where_half_a_quota_gives_half_the_speed_or_more(half):
    assert measure.lost_cores(half) == 0.0
