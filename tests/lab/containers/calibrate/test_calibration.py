import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ask.calibration import Value
from lab.containers.calibrate.values import DEFAULT_PATH, Program, load_calibration, write
from twin.containers.model import Machine
from twinbed import ScenarioError

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
        ("schema = 5", "schema = 2", "schema: 2 is not 5"),
        ("schema = 5", "schema = true", "schema: True is not 5"),
        ("date = 2026-11-20", "date = 'today'", "date: Input should be a valid date, not 'today'"),
        ('name = "default"', "", "name: missing"),
        ("value = 2.0", "value = -2.0", "values.restart_s.value: Input should be greater than or equal to 0"),
        ("value = 2.0", "value = nan", "values.restart_s.value: nan is not a finite number"),
        ('unit = "1"', 'unit = "s"', "values.telemetry_loss: unit: 's' is not '1'"),
        (LOSS, LOSS.replace("0.0", "1.5"), "values.telemetry_loss: value: 1.5 is a share"),
        ("value = 2.0", "value = 'two'", "values.restart_s.value: Input should be a valid number"),
        ("[values.restart_s]", "[values.restart]", "values.restart_s: missing"),
        ("[program.visit_s]", "[program.visits]", "program.visit_s: missing"),
        ('unit = "ratio"', 'unit = "s"', "program.dilation: unit: 's' is not 'ratio'"),
        ("[measured]", "[measured.x]\nvalue = 1", "measured.x.unit: missing"),
        ("[measured]", "[measured]\nx = 1", "measured.x: Input should be a dictionary"),
        (
            "value = 2.0",
            "value = 2.0\nn = 3\np50 = -1.0",
            "values.restart_s.p50: Input should be greater than or equal to 0",
        ),
        ("value = 2.0", "value = 2.0\nn = 3.5", "values.restart_s.n: Input should be a valid integer"),
        ("schema = 5", "schema = ", "not a TOML file"),
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
