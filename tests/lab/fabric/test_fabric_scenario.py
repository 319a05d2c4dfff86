"""A scenario with a fabric: what it may say, and what is refused in one line."""

from dataclasses import replace

import pytest

from control.fabric import Direction
from lab.ask.scenario import build, expand, with_overrides
from lab.fabric.calibrate import values as calibration
from lab.fabric.calibrate.retries import RetryProfile, retry_profile
from lab.fabric.kind import Fabric
from lab.fabric.run import world
from lab.fabric.validate import both
from twin.fabric.retransmission import PLAIN
from twinbed import ScenarioError

MINIMAL = {"name": "edge", "fabric": {"sends": {"messages": 10, "message_bytes": 100_000}}}


def asked(**changes):
    return {**MINIMAL, "fabric": {**MINIMAL["fabric"], **changes}}


def of_fleet(**changes):
    return {**MINIMAL, "fabric": {"fleet": {}, **changes}}


def test_its_policies_are_schemes_and_all_of_them_by_default():
    assert build(MINIMAL).policies == ["none", "bond", "reroute", "thorn-software", "thorn"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (
            {**MINIMAL, "policies": ["escra"]},
            "policy escra is for scenarios with containers; with a fabric give none",
        ),
        ({**MINIMAL, "policies": ["thorn:x=1"]}, "policy thorn: it has no parameters"),
        ({**MINIMAL, "period_s": 0.05}, "period_s has no meaning with a fabric"),
        ({"name": "edge", "fabric": {}}, "fabric: give one of sends"),
        (asked(topology={"hosts": 1}), "fabric.topology.hosts"),
        ({**MINIMAL, "fabric": {"collective": {"repeats": 10**12}}}, "fabric.collective.repeats: .*10000000"),
        (asked(topology={"hosts": 5, "tors": 3, "racks": 2}), "topology.*tors: 3 do not fill 2 racks"),
        (asked(values={"control": {"hold": 0.0}}), "did you mean 'control.hold_s'"),
        (asked(values={"bfd": {"interval_s": -1.0}}), "greater than or equal to 0"),
        (asked(values={"retry_adp": {"low": 3.0}}), "retry_adp.low: a series"),
        (asked(values={"bfd": {"multiplier": 3.9}}), "bfd.multiplier: 3.9; give a whole number"),
        (of_fleet(topology={"hosts": 9}), "a fleet has a topology and faults of its own"),
        (of_fleet(faults={"kind": "none"}), "leave out all but faults.silent"),
        (asked(retry_profile="cx7"), "fabric.retry_profile"),
        (asked(faults={"kind": "sometimes"}), "fabric.faults.kind"),
        (asked(faults={"kind": "random"}), "per_day is for random faults, and they need it"),
        (asked(faults={"kind": "single", "per_day": {"port": 1.0}}), "per_day is for random faults"),
        (
            {"name": "x", "trace": {"source": "y"}, "policies": ["thorn"]},
            "policy thorn is for scenarios with a fabric; with containers give",
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
    assert set(values) == {
        f"{section}.{key}" for section, units in calibration.UNITS.items() for key in units
    }
    assert all(value.unit and value.source for value in values.values())


def test_a_replaced_delay_keeps_its_relative_spread():
    shipped = calibration.load_calibration()
    carrier_s = calibration.fabric(shipped, {"control": {"carrier_s": 0.2}}).control.carrier_s
    measured = shipped.values["control.carrier_s"]
    assert carrier_s.median_s == 0.2
    assert carrier_s.p95_s == pytest.approx(0.2 * measured.p95 / measured.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[bond.lacp_s]", "[bond.lacp]", r"bond\.lacp: unknown key; did you mean 'lacp_s'"),
        ('unit = "exponent"', 'unit = "s"', "unit: 's' is not 'exponent'"),
        ("schema = 3", "schema = 9", "schema: 9 is not 3"),
        ("[bfd.multiplier]\nvalue = 5", "[bfd.multiplier]\nvalue = 4.5", r"bfd\.multiplier: 4\.5; give"),
        ("series = [0.0209,", "series = [0.0125,", "not the first of the series"),
    ],
)
def test_a_wrong_calibration_is_refused_with_file_and_key(tmp_path, old, new, said):
    text = calibration.DEFAULT_PATH.read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ScenarioError, match=said):
        calibration.load_calibration(path)


def test_writing_a_calibration_keeps_the_comments_inside_the_file_and_replaces_the_one_at_its_top():
    shipped = calibration.load_calibration()
    text = calibration.write(replace(shipped, name="mine"), "Made by a test.")
    assert text.startswith('# Made by a test.\nschema = 3\nname = "mine"\n')
    original = calibration.DEFAULT_PATH.read_text(encoding="utf-8")
    assert text.split("\n")[4:] == original[original.index("kernel = ") :].split("\n")


def test_a_scenario_names_its_adapter_and_the_real_fabric_has_the_plain_timer_whatever_it_names():
    for name in RetryProfile:
        (spec,) = expand(build(asked(retry_profile=str(name)) | {"policies": ["thorn"]}))
        wanted = retry_profile(name, spec.calibration.values)
        assert world.build_world(spec).fabric.queue_pair.retry_profile == wanted
        assert both.asked_of(spec)[1].queue_pair.retry_profile == PLAIN
    assert build(asked()).fabric.retry_profile == "cx6-20.43"


def test_a_carrier_that_is_lost_one_way_is_not_taken_for_one_that_is_lost_both_ways():
    faults = {"kind": "single", "one_way": "out", "silent": False}
    (spec,) = expand(build(asked(faults=faults) | {"policies": ["thorn"]}))
    with pytest.raises(ScenarioError, match=r"faults\.one_way: a carrier is lost both ways"):
        both.asked_of(spec)


def test_a_validation_says_what_of_a_scenario_it_leaves_out(monkeypatch):
    monkeypatch.setattr(both, "validate", lambda *_: [])
    large = build(asked(topology={"hosts": 16, "tors": 3}) | {"policies": ["thorn"]})
    shown, _ = Fabric().validate(large, None, repeats=1, fresh=False, progress=None)
    assert "links of two hosts" in shown.notes[1]


def test_ranges_that_do_not_belong_together_are_refused(tmp_path):
    text = calibration.DEFAULT_PATH.read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text.replace("series = [1, 1]", "series = [1, 1, 1]", 1), encoding="utf-8")
    with pytest.raises(ScenarioError, match="low, size and tries need a number for each range"):
        retry_profile("adp", calibration.load_calibration(path).values)


def planned(lasts_s=100.0, **faults):
    (spec,) = expand(build(asked(faults=faults) | {"policies": ["thorn"]}))
    return world.plan(world.build_world(spec), lasts_s)


def test_faults_are_planned_as_they_are_asked_for():
    assert planned(kind="none") == []
    (fault,) = planned(kind="single", what="tor", uplink=1, host=2)
    assert (fault.kind, fault.at_s, fault.tor) == ("tor", 50.0, 1)
    (fault,) = planned(kind="single", host=1, one_way="in")
    assert (fault.host, fault.uplink, fault.one_way) == (1, 0, Direction.IN)
    flaps = planned(kind="flapping", host=3, uplink=1, down_s=1.0, up_s=9.0)
    assert [fault.at_s for fault in flaps] == [9.0 + 10 * turn for turn in range(10)]
    assert {(fault.host, fault.uplink) for fault in flaps} == {(3, 1)}
    flaps = planned(kind="flapping", what="tor", uplink=1, down_s=1.0, up_s=9.0)
    assert {(fault.kind, fault.tor) for fault in flaps} == {("tor", 1)}
    assert {fault.one_way for fault in planned(kind="flapping", one_way="out")} == {Direction.OUT}
    often = {"port": 864.0, "tor": 86.4}
    drawn = planned(lasts_s=10_000.0, kind="random", per_day=often, down_s=2.0)
    # 10 ports at one fault in 100 s, 2 ToRs at one in 1,000 s.
    assert sum(fault.kind == "port" for fault in drawn) == pytest.approx(1000, abs=150)
    assert sum(fault.kind == "tor" for fault in drawn) == pytest.approx(20, abs=15)
    assert planned(lasts_s=10_000.0, kind="random", per_day=often, down_s=2.0) == drawn


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"kind": "single", "host": 9}, "host: 9 does not exist: give 0 to 4"),
        ({"kind": "single", "uplink": 2}, "uplink: host 0 has no link 2"),
        ({"what": "tor"}, "what.*round_robin faults choose their own"),
        ({"kind": "round_robin", "host": 3}, "host.*round_robin faults"),
        ({"kind": "random", "per_day": {"port": 1.0}, "one_way": "in"}, "one_way.*random faults"),
        ({"kind": "random", "per_day": {"port": 1.0}, "at_s": 5.0}, "at_s.*random faults"),
    ],
)
def test_a_fault_of_what_is_not_there_is_refused(faults, said):
    with pytest.raises(ScenarioError, match=said):
        planned(**faults)


@pytest.mark.parametrize(
    ("topology", "said"),
    [
        ({"hosts": 5, "tors": 4, "racks": 2}, "^fabric.topology: disconnected: .* add spines"),
        ({"hosts": 2, "tors": 3, "racks": 3, "spines": 1}, "^fabric.topology: tors: 3 groups of ToRs for 2"),
    ],
)
def test_a_topology_that_cannot_be_is_named_by_its_whole_key(topology, said):
    (spec,) = expand(build({**asked(topology=topology), "policies": ["thorn"]}))
    with pytest.raises(ScenarioError, match=said):
        world.build_world(spec)
