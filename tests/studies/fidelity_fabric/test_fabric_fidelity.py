"""From stored faults to figures: taken apart, calibrated, compared, written down."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from control.fabric import BfdState, Direction, FaultKind
from lab.ask.scenario import load, with_overrides
from lab.cli.main import call
from lab.fabric.calibrate.measure import calibrated
from lab.fabric.calibrate.values import fabric, load_calibration, write
from lab.fabric.real import campaign, plan
from lab.fabric.real.chain import chain
from lab.fabric.real.settings import Road, Setting, What, setting
from lab.fabric.real.store import MeasuredFault, Store, Watched
from lab.fabric.validate.both import validate
from lab.fabric.validate.judge import (
    LEAST_FAULTS,
    Compared,
    Gaps,
    agree,
    compared,
    measured,
    result,
    simulated,
    under_stalls,
)
from lab.runs.formats import table
from studies.fidelity_fabric import campaigns, conditions
from studies.fidelity_fabric.page import Measurements, document
from studies.harness import Asked
from testbed.fabric import sentinel
from testbed.fabric.model import Injected, Plan
from testbed.fabric.plan import fabric_of
from testbed.fabric.sentinel import Stall
from testbed.fabric.witness import BfdSeen, BgpSeen, RouteSeen
from twin.fabric.model import Stalls
from twinbed import BackendError, ScenarioError

MS = 1_000_000
FAST = setting("fast-3x100-both")
SCENARIO = Path("scenarios/T5.yaml")
MACHINE = {"kernel": "Linux", "cpus": 2, "cpu_model": "x86"}
STEPS = {"near": 0.075, "sent": 0.061, "far": 0.063}
FAST_STEPS = {"fast_late": 0.0002, "fast_told": 0.0005, "fast_route": 0.0006, "fast_far": 0.0006}


def fault(out_s=0.24, in_s=0.24, chain=STEPS, **other) -> MeasuredFault:
    row = MeasuredFault(
        "2026-11-21T22:00:00+00:00", 0, 0, 0.0005, out_s, in_s, 4, 4, 0.0, 0.0, 0.0, 1.9, dict(chain), 0
    )
    return replace(row, **other)


def test_a_row_after_one_that_was_cut_off_is_on_a_line_of_its_own(tmp_path):
    kept = Store(tmp_path)
    kept.add(FAST, fault())
    (file,) = tmp_path.glob("*.jsonl")
    with file.open("a") as opened:
        opened.write('{"date": "2026-11-21", "chain": {"near": 0.1}')
    kept.add(FAST, fault(out_s=0.5))
    assert [row.out_s for row in kept.faults(FAST)] == [0.24, 0.5]


def test_nothing_compared_is_no_agreement():
    assert not agree([])
    few = Gaps(*(np.full(LEAST_FAULTS - 1, 0.2) for _ in range(3)))
    assert compared("cell", few, few) == []
    assert f"fewer than {LEAST_FAULTS} faults" in table(result([]))


@pytest.fixture
def store(tmp_path) -> Store:
    """Every calibrating setting with 20 faults that are all alike but for the message."""
    made = Store(tmp_path)
    for planned in plan.CALIBRATION:
        for turn in range(20):
            steps = {**STEPS, "sent": 0.061 + 0.0001 * turn}
            if planned.setting.what is What.CARRIER:
                steps = {"fast_carrier": 0.0052}
            made.add(planned.setting, fault(chain={**steps, **FAST_STEPS}))
    return made


@pytest.mark.parametrize("planned", plan.ALL, ids=lambda planned: planned.setting.key)
def test_a_key_names_its_setting(planned) -> None:
    assert setting(planned.setting.key) == planned.setting


def test_what_calibrates_is_not_what_is_compared() -> None:
    known = {item.setting for item in plan.CALIBRATION}
    assert not known & {item.setting for item in plan.OTHERS}
    assert not {(item.multiplier, item.interval_ms) for item in known} & {
        (item.setting.multiplier, item.setting.interval_ms) for item in plan.OTHERS
    }


def test_every_fault_that_is_planned_has_its_round_and_a_round_is_busy_or_not() -> None:
    for planned in plan.ROUNDS:
        assert len({item.setting.busy for item in planned}) == 1
        fabrics = campaigns.fabrics_of(planned)
        assert sum(len(item) for item in fabrics) == len(planned)
        for fabric_ in fabrics:
            assert len({item.setting.plan("x") for item in fabric_}) == 1
    assert {*plan.CALIBRATION} <= {*plan.ALL}


def test_routers_whose_groups_a_lost_carrier_strands_have_a_fabric_of_their_own() -> None:
    lost, silent = (plan.Planned(setting(f"stock-5x50-{what}"), 1) for what in ("carrier", "both"))
    assert lost.setting.strands_groups
    assert not silent.setting.strands_groups
    assert not setting("fast-5x50-carrier").strands_groups
    assert len(campaigns.fabrics_of([lost, silent])) == 2


def test_what_is_stored_is_not_measured_again(tmp_path) -> None:
    made, planned = Store(tmp_path), plan.Planned(FAST, 2, 600.0)
    assert campaigns.lacks(planned, made)
    for _ in range(2):
        made.add(FAST, fault())
    assert campaigns.unwatched_s(planned, made) == 600.0
    made.add(FAST, Watched("2026", 599.5, 4, 0, 0, []))
    assert not campaigns.lacks(planned, made)
    # Nothing is raised, for nothing is done.
    campaigns.measure([planned], made, float("inf"))


def test_conditions_tell_alone_from_side_by_side_and_count_sessions_by_minutes() -> None:
    alone = [fault(0.24, 0.24, cpu=0.3, lasted_s=2.0, downs=0)] * 20
    among = [fault(0.25, 0.24, fabrics=4, cpu=0.7, lasted_s=2.0, downs=1)] * 20
    faults = {FAST: [*alone, *among], setting("real-time-3x100-both"): alone}
    assert "1 fabric: 20, 4 fabrics: 20. From one fault to the next" in conditions.machine([*alone, *among])
    text = "\n".join(conditions.side_by_side(faults))
    assert "| fast-3x100-both | 1 | 20 | 240 | 240 | 240 | 240 | 30 |" in text
    assert "| fast-3x100-both | 4 | 20 | 250 | 250 | 250 | 250 | 70 |" in text
    assert "real-time" not in text
    # 60 faults of 2 s, three sessions in every fault: the fast path's with the others.
    assert conditions.false_downs(faults, {}, FAST) == (20, "20 false downs in 6 session-minutes")
    assert conditions.false_downs(faults, {}, setting("stock-3x100-both")) == (
        None,
        "false downs not counted",
    )


def test_a_later_gap_of_a_thinned_flow_is_no_longer_than_is_certain(tmp_path) -> None:
    path = tmp_path / "flows.txt"
    at_ns = 1000 * MS
    rows = [(0, at_ns - MS, at_ns + 249 * MS, 124), (1, at_ns + 900 * MS, at_ns + 940 * MS, 1)]
    path.write_text("".join(f"{' '.join(map(str, row))} .\n" for row in rows))
    side = campaign.worst(path, at_ns, campaign.THIN_SLACK_S)
    assert side.own_s == pytest.approx(0.25)
    assert side.later_s == pytest.approx(0.004)
    assert side.flows == 1


def test_a_setting_says_what_breaks_and_on_what() -> None:
    out = setting("stock-5x50-out")
    assert out.fault(1, 0).one_way is Direction.OUT
    assert out.plan("x").stock
    assert setting("fast-5x50-carrier").fault(0, 1).kind is FaultKind.LINK


def test_a_store_goes_on_after_a_line_that_was_cut_off(tmp_path) -> None:
    made = Store(tmp_path)
    made.add(FAST, fault())
    with (tmp_path / f"{FAST.key}.measured.jsonl").open("a") as file:
        file.write('{"date": "2026')
    assert made.faults(FAST) == [fault()]
    made.add(FAST, Watched("2026", 60.0, 4, 1, 0, [0.07]))
    assert made.watched(FAST)[0].stalls_s == [0.07]


def test_the_note_of_a_store_is_on_every_page_made_of_it(store, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(campaigns, "Store", lambda path: store)
    for note in ("In two parts.", None):
        assert campaigns.make(Asked(store=tmp_path, out=tmp_path, page_only=True, note=note)) == 0
    assert "In two parts." in (tmp_path / "fidelity-fabric.md").read_text()


def test_a_failover_is_taken_apart_by_what_was_seen() -> None:
    fabric = fabric_of(Plan(name="x"))
    setting_ = setting("fast-5x50-both")
    at_ns = 1000 * MS
    seen = [
        BfdSeen(at_ns - 10 * MS, 0, 0, True, BfdState.UP),
        BfdSeen(at_ns - 20 * MS, 0, 0, False, BfdState.UP),
        BfdSeen(at_ns - 1 * MS, 0, 1, True, BfdState.UP),
        RouteSeen(at_ns + 310 * MS, 0, 1, 1),
        BgpSeen(at_ns + 295 * MS, 1, 0),
        RouteSeen(at_ns + 360 * MS, 1, 0, 1),
        RouteSeen(at_ns + 999 * MS, 1, 0, 2),
    ]
    decided = [
        {"what": "steer", "on": "TimerFired", "at_ns": at_ns + 241 * MS, "done_ns": at_ns + 242 * MS,
         "host": fabric.hosts[1].loopback},
        {"what": "tell", "on": "TimerFired", "at_ns": at_ns + 241 * MS, "done_ns": 0, "host": ""},
        {"what": "steer", "on": "Told", "at_ns": at_ns + 243 * MS, "done_ns": at_ns + 244 * MS,
         "host": fabric.hosts[0].loopback},
    ]  # fmt: skip
    broken = setting_.fault(0, 0)
    steps = chain(fabric, broken, setting_, Injected(broken, at_ns - 1, at_ns), seen, decided)
    # The host's detection time ends at 240 ms after the fault, the ToR's at 230.
    assert steps == pytest.approx(
        {
            "near": 0.070, "sent": 0.065, "far": 0.065,
            "fast_late": 0.001, "fast_told": 0.002, "fast_route": 0.001, "fast_far": 0.001,
        }
    )  # fmt: skip


def test_the_worst_flow_of_a_fault_counts_and_stalls_may_be_left_out() -> None:
    rows = [fault(0.2, 0.3), fault(0.2, 0.0, in_flows=0), fault(0.9, 0.9, stall_s=0.1)]
    assert measured(FAST, rows).worst.tolist() == [0.3, 0.2, 0.9]
    assert measured(FAST, rows).into.tolist() == [0.3, 0.9]
    assert measured(FAST, rows, with_stalls=False).worst.tolist() == [0.3, 0.2]
    assert measured(FAST, [fault(0.2, 0.2, out_later_s=0.5)]).out.tolist() == [0.5]
    # A lost carrier may cost nothing at all.
    assert measured(setting("fast-5x50-carrier"), [fault(0.0, 0.0)]).worst.tolist() == [0.002]


def test_the_delays_of_both_hosts_are_kept_by_the_calibration(store) -> None:
    values = calibrated(store, Road.REAL_TIME).values
    hold_s, message_s, route_s = (
        values[f"control.{key}"].value for key in ("hold_s", "message_s", "route_s")
    )
    assert hold_s + route_s == pytest.approx(0.075)
    assert 2 * hold_s + message_s + route_s == pytest.approx(0.061 + 0.00095 + 0.063)
    assert values["control.carrier_s"].value == pytest.approx(0.005)
    assert values["control.session_up_s"].value == pytest.approx(1.9)
    assert values["fast.told_s"].value == pytest.approx(0.0005)
    # Values that are not measured keep their old values.
    assert values["link.rate_bps"] == load_calibration().values["link.rate_bps"]


def test_a_calibration_is_written_and_read_again(store, tmp_path) -> None:
    made = calibrated(store, Road.FAST)
    path = tmp_path / "fabric.toml"
    path.write_text(write(made, "Found on this machine."))
    again = load_calibration(path)
    assert again.values["control.route_s"].p95 == pytest.approx(made.values["control.route_s"].p95, rel=1e-5)
    assert fabric(again, {}, fast_path=True).control.fast is not None
    assert fabric(again, {}).control.fast is None


def test_the_verb_measures_every_step_and_writes_a_file_that_a_scenario_takes(
    monkeypatch, tmp_path, capsys
) -> None:
    def faults(planned, store, *_) -> None:
        for _ in range(planned.faults):
            store.add(planned.setting, fault(chain={**STEPS, **FAST_STEPS, "fast_carrier": 0.0012}))

    def watch(setting_, lasts_s, store, name) -> None:
        store.add(setting_, Watched("2026", lasts_s, 4, 0, 0, [0.03, 0.08, 0.12]))

    monkeypatch.setattr("lab.fabric.real.campaign.measure", faults)
    monkeypatch.setattr("lab.fabric.real.campaign.watch", watch)
    out = tmp_path / "mine.toml"
    code = call(["calibrate", "--pillar", "fabric", "--quick", "--out", str(out), "--format", "json"])
    assert code == 0
    values = {
        (row["section"], row["key"]): row["value"] for row in json.loads(capsys.readouterr().out)["rows"]
    }
    assert values["fast", "route_s"] == pytest.approx(0.0006)
    assert values["control", "carrier_s"] == pytest.approx(0.001)
    assert values["stalls", "per_s"] == pytest.approx(2 / 10)
    assert values["stalls", "excess_s"] == pytest.approx(0.05)
    assert with_overrides(load(SCENARIO), [f"calibration={out}"]).calibration == str(out)
    assert load_calibration(out).name == "mine"


def test_without_a_whole_failover_nothing_is_calibrated(tmp_path) -> None:
    with pytest.raises(BackendError, match="no complete failover was observed"):
        calibrated(Store(tmp_path), Road.STOCK)


def test_the_twin_is_as_fast_as_its_road(store) -> None:
    control = fabric(calibrated(store, Road.FAST), {}, fast_path=True).control
    fast, slow = (simulated(setting(f"{road}-5x50-both"), control) for road in ("fast", "real-time"))
    # 250 ms less what had passed since the last packet, 1 ms for the fast path, and the probes' intervals.
    assert 0.22 < np.median(fast.worst) < 0.25
    assert np.median(slow.out) - np.median(fast.out) == pytest.approx(0.075, abs=0.006)
    assert np.median(slow.into) - np.median(fast.into) == pytest.approx(0.125, abs=0.006)
    # A stall can bring other sessions down meanwhile; without any, one direction alone is lost.
    assert not simulated(setting("fast-5x50-out"), under_stalls(control, [])).into.size
    assert np.median(simulated(setting("fast-5x50-carrier"), control).worst) < 0.02


def test_an_error_within_the_limit_or_the_probes_resolution_agrees() -> None:
    assert Compared("x", "out", "median", 100, 0.28, 0.25).agrees
    assert not Compared("x", "out", "median", 100, 0.29, 0.25).agrees
    assert Compared("x", "out", "p95", 100, 0.31, 0.25).agrees
    assert Compared("x", "out", "median", 100, 0.008, 0.004).agrees


def test_few_faults_are_not_compared() -> None:
    some, few = np.full(LEAST_FAULTS, 0.25), np.full(LEAST_FAULTS - 1, 0.25)
    comparisons = compared("x", Gaps(some, few, some), Gaps(some, some, some))
    assert [(item.way, item.what) for item in comparisons] == [("out", "median"), ("out", "p95")]
    assert "agrees" in table(result(comparisons))


def test_the_page_has_every_setting_and_says_whether_the_aim_is_reached(store) -> None:
    rows = {setting("fast-5x50-both"): [fault()] * 30, setting("fast-3x20-both"): [fault(0.3, 0.3)] * 30}
    calibration = calibrated(store, Road.FAST)
    control = fabric(calibration, {}, fast_path=True).control
    text = document(
        Measurements(
            faults=rows,
            watched={setting("fast-5x50-both"): [Watched("2026", 660.0, 4, 0, 0, [0.03], 2, 0.5)]},
            calibrations={Road.FAST: calibration},
            compared=[
                one
                for item, faults in rows.items()
                for one in compared(item.key, measured(item, faults), simulated(item, control))
            ],
            machine=MACHINE,
        )
    )
    assert (
        "fast path, 5×50: 0.96 × and 0.96 × of 250 ms, 30 faults: reached; "
        "0 false downs in 44 session-minutes" in text
    )
    assert "fast path, 3×20: 5.00 ×" in text
    assert (
        "Farthest from the detection time at the 99th percentile: fast 3×20 silent, both ways, idle" in text
    )
    assert "0 failovers changed one" in text
    assert "Tunnel rules changed" not in text
    assert "Stock FRR after a lost carrier" not in text


def test_the_page_says_why_rules_changed_what_stock_needs_and_what_ships(store) -> None:
    moved = [fault(rules=4, downs=2), fault(rules=2, downs=0), fault(rules=4)]
    quiet, flapped = fault(), fault(lasted_s=2.0, downs=1)
    text = document(
        Measurements(
            faults={
                setting("fast-3x20-both"): [quiet, *moved],
                setting("fast-5x50-both"): [flapped],
                setting("stock-5x50-carrier"): [quiet],
            },
            watched={},
            calibrations={Road.REAL_TIME: calibrated(store, Road.REAL_TIME)},
            compared=[],
            machine=MACHINE,
        )
    )
    assert "changed in 3 faults, at 3×20. In 1 of the 2 of them in which downs were counted" in text
    assert "1 fault: reached by the gaps alone; 1 false down in 0 session-minutes" in text
    assert "zebra keeps groups for 1 s here" in text
    # The hold of 50 ms and the routes' 23.5 ms, as they ship.
    assert "it takes 73.5 ms with it, and 75.0 ms as measured here" in text


def _page(store, faults, watched) -> str:
    """Return the page of these faults and quiet times."""
    made = Measurements(faults, watched, {Road.FAST: calibrated(store, Road.FAST)}, (), MACHINE)
    return document(made)


def test_an_aim_without_false_downs_is_not_reached_where_none_were_counted(store) -> None:
    text = _page(store, {FAST: [fault()] * 30}, {})
    assert "30 faults: reached by the gaps alone; false downs not counted" in text
    assert "reaches its aim at no timers" in text


def test_the_page_says_that_sessions_go_down_by_themselves_only_if_some_did(store) -> None:
    faults = {setting("fast-3x10-both"): [fault()] * 30}
    text = "At the shortest timers sessions go down by themselves"
    for downs, stall_s, said in (
        (0, 0.05, ""),
        (3, 0.02, f"{text}."),
        (3, 0.05, f"{text}, because the machine stalls for too long."),
    ):
        watched = {setting("fast-3x10-both"): [Watched("2026", 660.0, 4, downs, 0, [stall_s])]}
        made = _page(store, faults, watched)
        assert said in made
        assert said or text not in made


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policies=[bond]", "bond: the testbed has the overlay alone"),
        ("fabric.topology.spines=2", "one rack without spines, or two racks of two ToRs with spines"),
        ("fabric.faults.kind=none", "the testbed validates single faults of a port or a link"),
        ("vary={fabric.faults: [{kind: flapping, what: tor}]}", "the testbed validates single faults of a"),
    ],
)
def test_what_no_testbed_has_is_named_before_anything_is_measured(override, said) -> None:
    question = with_overrides(load(SCENARIO), ["policies=[thorn]", override])
    with pytest.raises(ScenarioError, match=said):
        validate(question, 1, lambda *_: None)


@pytest.mark.root
@pytest.mark.slow
def test_a_fault_is_measured_on_a_real_fabric_and_changes_no_tunnel_rule(tmp_path) -> None:
    from testbed.fabric import doctor

    try:
        doctor.require()
    except BackendError as error:
        pytest.skip(str(error))
    store, chosen = Store(tmp_path), Setting(Road.FAST, 5, 50)
    campaign.measure(plan.Planned(chosen, 2), store, "fidelity", float("inf"), lambda _: None)
    for row in store.faults(chosen):
        # With 8 flows, none takes the broken link in 1 of 256 boots; with 16 flows, in 1 of 65,536.
        assert row.out_flows + row.in_flows
        assert row.rules == 0
        assert FAST_STEPS.keys() <= row.chain.keys()
    assert json.loads((tmp_path / f"{chosen.key}.measured.jsonl").read_text().splitlines()[0])["chain"]


def test_stalls_that_bring_sessions_down_lengthen_the_longest_gaps_alone() -> None:
    control = fabric(load_calibration(), {}, fast_path=True).control
    still = replace(control, stalls=replace(control.stalls, per_s=0.0))
    stalling = replace(control, stalls=Stalls(per_s=0.03, floor_s=0.02, excess_s=0.025))
    for key in ("fast-3x10-both", "stock-3x10-carrier", "fast-3x20-both"):
        without, stalled = (simulated(setting(key), each) for each in (still, stalling))
        assert np.median(stalled.into) == pytest.approx(np.median(without.into), abs=0.01)
        assert np.percentile(without.into, 99) < 0.5 < np.percentile(stalled.into, 99)
    # Five times 50 ms is longer than nearly all such stalls, and our own data plane knows them.
    for key in ("fast-5x50-both", "plane-3x10-both"):
        without, stalled = (simulated(setting(key), each) for each in (still, stalling))
        assert np.percentile(stalled.worst, 99) == pytest.approx(np.percentile(without.worst, 99))


def test_the_twin_is_given_the_stalls_of_the_machine_while_it_was_measured() -> None:
    control = fabric(load_calibration(), {}, fast_path=True).control
    rows = [fault(lasted_s=4.0, stalls_s=[0.03, 0.05]), fault(lasted_s=4.0, stalls_s=[])]
    assert under_stalls(control, rows).stalls == Stalls(0.25, 0.02, pytest.approx(0.02))
    for unknown in (rows[1:], [*rows, fault(lasted_s=4.0)]):
        assert under_stalls(control, unknown).stalls.per_s == 0.0


def test_a_stall_of_the_machine_is_one_of_every_cpu_at_once(monkeypatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    stalls = [Stall(0, 0, 50 * MS), Stall(1, 20 * MS, 70 * MS), Stall(0, 90 * MS, 120 * MS)]
    assert sentinel.of_all_s(stalls) == [pytest.approx(0.03)]
