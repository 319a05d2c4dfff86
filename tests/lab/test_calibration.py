import dataclasses

import pytest

from lab.calibration import DEFAULT_PATH, load_calibration
from twin.containers.model import Machine
from twinbed import ScenarioError

DEFAULT = DEFAULT_PATH.read_text()
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
        ("schema = 1", "schema = 2", "schema: 2 is not 1"),
        ("schema = 1", "schema = true", "schema: True is of the wrong type"),
        ("date = 2026-11-20", "date = 'today'", "date: 'today' is of the wrong type"),
        ('name = "default"', "", "name is missing"),
        ("value = 2.0", "value = -2.0", "values.restart_s.value: -2.0 is not a finite number"),
        ("value = 2.0", "value = nan", "values.restart_s.value: nan is not a finite number"),
        ('unit = "1"', 'unit = "s"', "values.telemetry_loss.unit: 's' is not '1'"),
        (LOSS, LOSS.replace("0.0", "1.5"), "values.telemetry_loss.value: 1.5 is a share"),
        ("value = 2.0", "value = 'two'", "values.restart_s: value: 'two' is of the wrong type"),
        ("[values.restart_s]", "[values.restart]", "unknown key 'restart'"),
        ("schema = 1", "schema = ", "not a TOML file"),
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
