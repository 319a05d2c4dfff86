"""`twinbed validate` and `twinbed calibrate` as a user meets them, without a testbed."""

import json
import os

import pytest

from lab.containers.calibrate import measure
from lab.containers.calibrate.values import load_calibration
from lab.containers.real import backend
from testbed.containers.host import loop
from tests.lab.sample_cells import fitting
from tests.lab.sample_observed import observed
from twinbed import BackendError

SCENARIO = """\
name: steady
policies: [static]
workload:
  containers:
    - {name: web, threads: 1, memory_bytes: 67108864, steps: [{duration_s: 1, cpu_cores: 0.3}]}
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "steady.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def imitated(monkeypatch):
    """A control loop that says what the twin says of `steady`, but for the throttling."""

    def control(containers, applications, allocator, settings, *, client=None, **_more):
        return observed(tuple(each.spec.name for each in containers), 10)

    monkeypatch.setattr(loop, "control", control)
    monkeypatch.setattr(backend, "check", lambda: None)
    monkeypatch.setattr(backend, "probe", fitting)


def test_every_quantity_has_a_verdict_and_too_many_misses_are_exit_code_1(twinbed, scenario, imitated):
    ended = twinbed("validate", scenario, "--repeats", 2, "--format", "json")
    assert ended.code == 1
    document = json.loads(ended.out)
    verdicts = {row["quantity"]: row["verdict"] for row in document["rows"]}
    assert verdicts["CPU work done"] == "inside limit"
    assert verdicts["Throttled periods"] == "outside"
    assert any("the aim is 95%" in note for note in document["notes"])


def test_where_no_containers_can_be_run_it_is_said_in_one_line(twinbed, scenario, monkeypatch):
    def refuse():
        raise BackendError("/sys/fs/cgroup: no permission; run as root")

    monkeypatch.setattr(backend, "check", refuse)
    assert twinbed("validate", scenario).refused.endswith("run as root")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may make cgroups")
def test_calibrating_without_root_names_the_cure(twinbed, tmp_path):
    assert "root" in twinbed("calibrate", "--out", tmp_path / "mine.toml").refused


def test_a_calibration_is_written_and_shown(twinbed, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "calibrate", lambda name, effort, progress: load_calibration())
    path = tmp_path / "mine.toml"
    ended = twinbed("calibrate", "--out", path, "--format", "csv")
    assert ended.code == 0
    assert "oom_grant_delay_s" in ended.out
    assert load_calibration(path).values == load_calibration().values
