"""A scenario with a fabric: what it may say, and what is refused in one line."""

import pytest

from lab.fabric import calibration
from lab.scenario import build, expand, with_overrides
from twinbed import ScenarioError

MINIMAL = {"name": "edge", "fabric": {"sends": {"messages": 10, "message_bytes": 100_000}}}


def asked(**changes):
    return {**MINIMAL, "fabric": {**MINIMAL["fabric"], **changes}}


def test_its_policies_are_schemes_and_all_of_them_by_default():
    assert build(MINIMAL).policies == ["none", "bond", "reroute", "thorn-software", "thorn"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({**MINIMAL, "policies": ["escra"]}, "policy escra is for containers; with a fabric give none, bond"),
        ({**MINIMAL, "policies": ["thorn:x=1"]}, "policy thorn: a scheme has no parameters"),
        ({**MINIMAL, "period_s": 0.05}, "period_s has no meaning with a fabric"),
        ({"name": "edge", "fabric": {}}, "fabric: give one of sends"),
        (asked(topology={"hosts": 1}), "fabric.topology.hosts"),
        (asked(values={"control": {"hold": 0.0}}), "did you mean 'control.hold_s'"),
        (asked(values={"bfd": {"interval_s": -1.0}}), "greater than or equal to 0"),
        (asked(faults={"kind": "sometimes"}), "fabric.faults.kind"),
        (
            {"name": "x", "trace": {"source": "y"}, "policies": ["thorn"]},
            "thorn is for scenarios with a fabric",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(raw, said):
    with pytest.raises(ScenarioError, match=said):
        build(raw)


def test_values_of_the_calibration_are_replaced_by_their_dotted_key():
    changed = with_overrides(
        build(MINIMAL), ["fabric.values.control.hold_s=0.0", "vary.fabric.topology.hosts=[2, 3]"]
    )
    specs = expand(changed)
    assert len(specs) == 2 * len(changed.policies)
    assert specs[0].resolved()["fabric"]["values"] == {"control": {"hold_s": 0.0}}


def test_conditions_of_containers_are_no_part_of_its_identity():
    assert set(expand(build(MINIMAL))[0].resolved()) == {"name", "fabric", "policy", "seed"}


def test_every_value_of_the_shipped_calibration_has_its_unit_and_source():
    values = calibration.load_calibration().values
    assert set(values) == {f"{one}.{key}" for one, units in calibration.UNITS.items() for key in units}
    assert all(each.unit and each.source for each in values.values())


def test_a_replaced_delay_keeps_its_relative_spread():
    shipped = calibration.load_calibration()
    found = calibration.fabric(shipped, {"control": {"carrier_s": 0.2}}).control.carrier_s
    measured = shipped.values["control.carrier_s"]
    assert found.median_s == 0.2
    assert found.p95_s == pytest.approx(0.2 * measured.p95 / measured.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[bond.lacp_s]", "[bond.lacp]", "bond: unknown key 'lacp'"),
        ('unit = "exponent"', 'unit = "s"', "unit: 's' is not 'exponent'"),
        ("schema = 1", "schema = 9", "schema: 9 is not 1"),
    ],
)
def test_a_wrong_calibration_is_refused_with_file_and_key(tmp_path, old, new, said):
    text = calibration.DEFAULT_PATH.read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ScenarioError, match=said):
        calibration.load_calibration(path)
