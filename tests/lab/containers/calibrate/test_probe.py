"""A probe's answer about a machine that is the calibrated one, and about one that is not."""

import dataclasses
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ask.calibration import Value
from lab.containers.calibrate import probe
from lab.containers.calibrate.probe import Look, Probe
from lab.containers.calibrate.values import DEFAULT_PATH, Program, load_calibration, write
from testbed.containers import machine
from twin.containers.model import Machine
from twinbed import ScenarioError

SAME = Look("Linux 6.18.44-fc-v669, cgroup v1", 1e6, 3e-6)


def beside(**here) -> Probe:
    return Probe("mine", replace(SAME, **here), SAME)


@pytest.mark.parametrize(
    "here",
    [
        {},
        {"core_speed": 1.09e6},
        {"core_speed": 0.91e6},
        {"quota_write_s": 0.0009},
        {"kernel": "Linux 6.18.2 (Debian), cgroup v1 cpu and memory"},
    ],
)
def test_small_differences_fit(here):
    assert not list(beside(**here).misfits())
    assert (
        beside(**here).sentence
        == "Calibration 'mine' fits this machine in a core's speed, kernel and quota writes."
    )


@pytest.mark.parametrize(
    ("here", "said"),
    [
        ({"core_speed": 1.34e6}, "a core is 34% faster here"),
        ({"core_speed": 0.5e6}, "a core is 50% slower here"),
        ({"kernel": "Linux 6.1.0-13, cgroup v1"}, "the kernel is Linux 6.1.0-13, cgroup v1 here"),
        ({"kernel": "Linux 6.18.1, cgroup v2"}, "the kernel is Linux 6.18.1, cgroup v2 here"),
        ({"quota_write_s": 0.0021}, "a quota write takes 2.10 ms here, for 0.00 ms"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line_with_the_cure(here, said):
    sentence = beside(**here).sentence
    assert said in sentence
    assert "twinbed validate --calibrate" in sentence
    assert "\n" not in sentence


def test_a_calibration_that_does_not_know_its_cores_does_not_fit():
    assert list(Probe("old", SAME, replace(SAME, core_speed=None)).misfits()) == [
        "it does not say how fast a core was"
    ]


def test_both_looks_are_kept():
    plain = beside(core_speed=2e6).plain()
    assert (plain["core_speed_here"], plain["core_speed_calibrated"], plain["fits"]) == (2e6, 1e6, False)


def test_a_core_s_speed_is_that_of_calls_that_nobody_slowed_down(monkeypatch):
    cpu_s, calls = 0.0, 0

    def hashed(_name, _password, _salt, iterations):
        nonlocal cpu_s, calls
        calls += 1
        cpu_s += iterations / 2e6 * (3.0 if calls % 3 == 0 else 1.0)

    clock = SimpleNamespace(monotonic=lambda: cpu_s, thread_time=lambda: cpu_s)
    monkeypatch.setattr(machine, "time", clock)
    monkeypatch.setattr(machine, "pbkdf2_hmac", hashed)
    assert machine.core_speed(0.1) == pytest.approx(2e6)
    assert calls > 3


@pytest.mark.root
def test_a_real_probe_takes_less_than_two_seconds_and_sees_this_machine(cgroups):
    seen = probe.probe(load_calibration())
    assert seen.here.core_speed > 1e4
    assert 0 < seen.here.quota_write_s < 0.1
    assert seen.here.kernel.startswith("Linux")


DEFAULT = DEFAULT_PATH.read_text()
SHIPPED = load_calibration()
LOSS = "[values.telemetry_loss]\nvalue = 0.0"


def test_the_default_calibration_gives_every_field_of_the_machine_with_unit_and_source():
    calibration = load_calibration()
    assert set(calibration.values) == {each.name for each in dataclasses.fields(Machine)}
    assert all(
        value.source.startswith(("measured", "assumption", "kernel")) for value in calibration.values.values()
    )
    assert calibration.machine().oom_grant_delay_s == pytest.approx(233e-6)


def test_overrides_replace_single_values():
    machine = load_calibration().machine({"restart_s": 7.0})
    assert machine.restart_s == 7.0
    assert machine.telemetry_delay_s == load_calibration().machine().telemetry_delay_s


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema = 6", "schema = 2", "schema: 2 is not 6"),
        ("schema = 6", "schema = true", "schema: True is not 6"),
        ("date = 2026-11-20", "date = 'today'", "date: Input should be a valid date, not 'today'"),
        ('name = "default"', "", "name: missing"),
        ("value = 2.0", "value = -2.0", "values.restart_s.value: Input should be greater than or equal to 0"),
        ("value = 2.0", "value = nan", "values.restart_s.value: nan is not a finite number"),
        ('unit = "1"', 'unit = "s"', "values.telemetry_loss: unit: 's' is not '1'"),
        (LOSS, LOSS.replace("0.0", "1.5"), "values.telemetry_loss: value: 1.5 is a share"),
        ("value = 2.0", "value = 'two'", "values.restart_s.value: Input should be a valid number"),
        ("[values.restart_s]", "[values.restart]", "did you mean 'restart_s'?"),
        ("[program.visit_s]", "[program.visits]", "did you mean 'visit_s'?"),
        ('unit = "ratio"', 'unit = "s"', "program.dilation: unit: 's' is not 'ratio'"),
        ("[measured]", "[measured.x]\nvalue = 1", "measured.x.unit: missing"),
        ("[measured]", "[measured]\nx = 1", "measured.x: expected keys with values below it"),
        (
            "value = 2.0",
            "value = 2.0\nn = 3\np50 = -1.0",
            "values.restart_s.p50: Input should be greater than or equal to 0",
        ),
        ("value = 2.0", "value = 2.0\nn = 3.5", "values.restart_s.n: Input should be a valid integer"),
        ("schema = 6", "schema = ", "not a TOML file"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_file_and_key(old, new, said, tmp_path):
    path = tmp_path / "mine.toml"
    assert old in DEFAULT
    path.write_text(DEFAULT.replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        load_calibration(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"gone\.toml: No such file"):
        load_calibration(tmp_path / "gone.toml")


def test_the_service_programs_costs_come_from_the_file_too():
    calibration = load_calibration()
    assert set(calibration.program) == {each.name for each in dataclasses.fields(Program)}
    assert calibration.costs().dilation == calibration.program["dilation"].value


POSITIVE = st.floats(1e-9, 1e9)
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
"""Text and numbers within the limits of every file (lab.ask.guard)."""


@pytest.mark.slow
@settings(deadline=None)
@given(
    value=st.builds(
        Value, POSITIVE, st.sampled_from(["s", "ms per period"]), TEXT, st.integers(0, 2**63 - 1), POSITIVE
    )
)
def test_what_is_written_is_what_is_read(value, tmp_path_factory):
    mine = dataclasses.replace(SHIPPED, name='it "is" mine', measured={"overrun": value})
    path = tmp_path_factory.mktemp("mine") / "mine.toml"
    path.write_text(write(mine, "Two lines\n\nof a comment."), encoding="utf-8")
    read = load_calibration(path)
    assert (read.name, read.values, read.program) == (mine.name, mine.values, mine.program)
    found = read.measured["overrun"]
    assert (found.unit, found.source, found.n, found.p95) == (value.unit, value.source, value.n, None)
    assert found.value == pytest.approx(value.value, rel=1e-5)
