"""Scenarios on a market: input, drawn markets, traces, the twin, and the comparison with the testbed."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from control.market.ports import IDLE, ON_DEMAND, TAKE, Decision
from lab import kinds
from lab.ask.scenario import Scenario, build, expand, load
from lab.charts.market import charts
from lab.cloud.input.market import cloud_of
from lab.cloud.real.backend import Pace, training
from lab.cloud.run.market import drawn
from lab.cloud.validate.both import Compared, agree, result
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from twinbed import ScenarioError, TraceError

SMALL: dict[str, Any] = {
    "name": "small",
    "policies": ["planned", "greedy"],
    "cloud": {
        "job": {"hours": 3.0, "deadline_hours": 5.0, "checkpoint_gb": 1.0},
        "types": {"gpu": {"on_demand_usd_h": 3.0}},
        "on_demand": "gpu",
        "zones": {
            "a": {"region": "east", "type": "gpu", "spot_usd_h": 1.0},
            "b": {"region": "west", "type": "gpu", "spot_usd_h": 0.9},
        },
        "drawn": {"up_h": 1.0, "down_h": 1.0},
    },
}
TESTBED = expand(load("market_testbed"))[0]


def small(cloud: dict[str, Any] | None = None, **more: Any) -> Scenario:
    raw = copy.deepcopy(SMALL) | more
    raw["cloud"] |= {**({"drawn": {}} if "trace" in (cloud or {}) else {}), **(cloud or {})}
    return build(raw)


def test_runs_are_stored_with_what_was_held_and_offered_and_come_out_the_same_again(tmp_path):
    runs = run_scenario(small(seeds=[0, 1]), RunStore(tmp_path / "one"))
    again = run_scenario(small(seeds=[0, 1]), RunStore(tmp_path / "two"))
    assert [run.id for run in runs] == [run.id for run in again]
    for run, other in zip(runs, again, strict=True):
        assert run.metrics["late"] == 0
        assert run.metrics["over_optimum"] >= 1
        spans = run.frame("spans")
        assert spans.equals(other.frame("spans"))
        assert spans["end_s"].iloc[-1] / 3600 == pytest.approx(run.metrics["finish_h"])
        assert set(run.frame("market")["zone"]) == {"a", "b"}
    assert len(list(charts(runs))) == 3
    # Every policy of a seed meets the same market.
    assert runs[0].frame("market").equals(next(run for run in runs[1:] if run.seed == 0).frame("market"))


def test_the_chart_of_offers_shows_a_zone_where_it_has_machines_enough(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{hour * 3600},{zone},{hour % 4},1" for zone in "ab" for hour in range(40)]
    path.write_text("\n".join(["t_s,zone,available,spot_usd_h", *rows]))
    job = {"hours": 3.0, "deadline_hours": 5.0, "machines": 2}
    runs = run_scenario(small({"trace": str(path), "job": job}, policies=["greedy"]), RunStore(tmp_path))
    offers = next(iter(charts(runs))).chart.data
    assert set(offers["available"]) == {2.0, 3.0}
    assert "drawn" not in runs[0].manifest["spec"]["cloud"]  # it has no effect with a trace


def test_a_job_of_several_machines_is_as_one_machine_s_with_a_part_of_its_checkpoint(tmp_path):
    def costs(machines: int) -> list[tuple[float, float]]:
        job = {"hours": 10.0, "deadline_hours": 16.0, "machines": machines, "checkpoint_gb": 20.0 * machines}
        asked = small({"job": job}, policies=["planned", "sky-nomad"], seeds=[0, 1, 2, 3])
        runs = run_scenario(asked, RunStore(tmp_path / str(machines)))
        return [(run.metrics["cost_usd"] / machines, run.metrics["region_moves"]) for run in runs]

    assert np.array(costs(8)) == pytest.approx(np.array(costs(1)))


def test_a_run_is_a_timeline_of_what_was_held_and_offered(tmp_path):
    run = run_scenario(small(policies=["greedy"], seeds=[0]), RunStore(tmp_path))[0]
    job, losses, *offered = kinds.of(small()).timeline(run)
    assert job.end_s[-1] == pytest.approx(run.metrics["finish_h"] * 3600)
    assert (job.begin_s[1:] == job.end_s[:-1]).all()
    assert {name.partition(":")[0] for name in job.name} <= {"a", "b", "on demand", "no machine"}
    assert sum(name.startswith("notice") for name in losses.name) == run.metrics["revocations"]
    assert [(counter.process, counter.unit) for counter in offered] == [
        (f"zone {zone}", unit) for zone in "ab" for unit in ("machines", "USD/h")
    ]


FURTHER = SMALL["cloud"]["zones"] | {"c": {"region": "east", "type": "gpu", "spot_usd_h": 2.0}}


@pytest.mark.parametrize("change", [{"job": {"hours": 3.0, "deadline_hours": 50.0}}, {"zones": FURTHER}])
def test_a_later_deadline_and_a_further_zone_leave_the_market_as_it_was(change):
    calibration = expand(small())[0].calibration
    first, other = (drawn(cloud_of(small(some)), 3, calibration).market.zones for some in ({}, change))
    for zone, same in zip(first, other, strict=False):
        for short, long in ((zone.available, same.available), (zone.spot_usd_h, same.spot_usd_h)):
            assert np.array_equal(short.t_s, long.t_s[: short.t_s.size])
            assert np.array_equal(short.value, long.value[: short.t_s.size])


def test_a_market_is_drawn_from_its_seed_in_whole_minutes():
    asked, calibration = cloud_of(small()), expand(small())[0].calibration
    first, same, other = (drawn(asked, seed, calibration).market for seed in (3, 3, 4))
    for zone, twin in zip(first.zones, same.zones, strict=True):
        assert np.array_equal(zone.available.t_s, twin.available.t_s)
        assert (zone.available.t_s % 60 == 0).all()
        assert (zone.spot_usd_h.value <= 3.0).all()
        assert zone.spot_usd_h.value[0] == asked.zones[zone.name].spot_usd_h
    assert not np.array_equal(first.zones[0].available.t_s, other.zones[0].available.t_s)


@pytest.mark.parametrize("usd", [0.02, 5.0])
def test_a_drawn_price_begins_with_what_was_given_also_far_from_on_demand_s(usd):
    zones = {"a": {"region": "east", "type": "gpu", "spot_usd_h": usd}}
    asked, calibration = cloud_of(small({"zones": zones})), expand(small())[0].calibration
    (zone,) = drawn(asked, 0, calibration).market.zones
    assert zone.spot_usd_h.value[0] == usd
    assert (zone.spot_usd_h.value >= min(usd, 0.3)).all()
    assert (zone.spot_usd_h.value <= max(usd, 3.0)).all()


class Patient:
    """Takes the first zone whenever it has machines, else waits, written by a user."""

    def __init__(self, terms: object) -> None:
        self.terms = terms

    def on_step(self, state) -> Decision:
        there = state.available[:, 0]
        return Decision(np.where(there, 0, IDLE), np.full(1, TAKE))


def test_no_policy_costs_less_than_the_optimum_where_changes_fall_between_minutes(tmp_path):
    """A zone has machines in every other minute, which begins at half of a minute of the clock."""
    path = tmp_path / "trace.csv"
    rows = ["0,a,0,1", *(f"{30 + 60 * turn},a,{(turn + 1) % 2},1" for turn in range(400))]
    path.write_text("\n".join(["t_s,zone,available,spot_usd_h", *rows]))
    job = {"hours": 0.25, "deadline_hours": 1.0, "checkpoint_s": 1.0}
    given = {"trace": str(path), "job": job, "start_s": 0.0, "stop_s": 0.0, "notice_s": 0.0, "tick_s": 30.0}
    given |= {"zones": {"a": {"region": "x", "type": "gpu", "spot_usd_h": 1.0}}, "saves_at_notice": False}
    asked = small(given, policies=[f"{__file__}:Patient"], seeds=[0, 1, 2])
    for run in run_scenario(asked, RunStore(tmp_path / "runs")):
        assert run.metrics["on_demand_h"] == 0
        assert run.metrics["over_optimum"] >= 1


def test_a_very_short_and_a_very_long_job_run(tmp_path):
    short = small({"job": {"hours": 0.004, "deadline_hours": 0.012}, "start_s": 1.0, "stop_s": 1.0})
    for run in run_scenario(short, RunStore(tmp_path)):
        assert run.metrics["late"] == 0
        assert run.metrics["over_optimum"] >= 1
    long = small({"job": {"hours": 900.0, "deadline_hours": 1000.0}, "tick_s": 3600.0}, policies=["greedy"])
    (run,) = run_scenario(long, RunStore(tmp_path))
    assert run.metrics["late"] == 0
    assert np.isnan(run.metrics["over_optimum"])


def test_a_trace_leaves_nothing_to_be_drawn():
    with pytest.raises(ScenarioError, match=r"cloud: drawn: has no effect with a trace; leave it out"):
        small({"trace": "trace.csv", "drawn": {"up_h": 2.0}})


def test_a_trace_is_cut_at_a_random_minute(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{hour * 3600},{zone},{hour % 2},{1 + hour / 100}" for zone in "ab" for hour in range(40)]
    path.write_text("\n".join(["t_s,zone,available,spot_usd_h", *rows]))
    asked, calibration = cloud_of(small({"trace": str(path)})), expand(small())[0].calibration
    shared = drawn(asked, 0, calibration)
    zone = shared.market.zones[0]
    assert zone.available.t_s[0] == 0
    assert np.diff(zone.available.t_s)[1:-1] == pytest.approx(3600)
    assert zone.available.t_s[-1] >= shared.terms.deadline_s
    assert {entry["role"] for entry in shared.inputs} == {"market"}
    with pytest.raises(ScenarioError, match="give a shorter deadline"):
        drawn(
            asked.model_copy(update={"job": asked.job.model_copy(update={"deadline_hours": 50.0})}),
            0,
            calibration,
        )
    path.write_text("t_s,zone,available,spot_usd_h\n0,a,1,1\n9,a,1,0\n")
    with pytest.raises(TraceError, match=r"line 3, column spot_usd_h: '0.*expected a price above zero"):
        drawn(asked, 0, calibration)
    path.write_text("t_s,zone,available,spot_usd_h\n0,a,1,1\n99999,a,1,1\n")
    with pytest.raises(ScenarioError, match="no rows of zone 'b'"):
        drawn(asked, 0, calibration)
    path.write_text("t_s,zone,available,spot_usd_h\n0,a,1,1\n0,b,0,1\n99999,a,1,1\n")
    gang = asked.model_copy(update={"job": asked.job.model_copy(update={"machines": 4})})
    with pytest.raises(ScenarioError, match=r"is at most 1, and cloud\.job\.machines is 4"):
        drawn(gang, 0, calibration)


def test_a_trace_is_cut_at_the_same_minute_for_every_deadline_that_it_can_hold(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{hour * 3600},{zone},{hour % 2},{1 + hour / 100}" for zone in "ab" for hour in range(300)]
    path.write_text("\n".join(["t_s,zone,available,spot_usd_h", *rows]))
    calibration = expand(small())[0].calibration
    firsts = []
    for hours in (5.0, 15.0, 200.0):
        asked = cloud_of(small({"trace": str(path), "job": {"hours": 3.0, "deadline_hours": hours}}))
        zones = [drawn(asked, seed, calibration).market.zones[0] for seed in range(12)]
        firsts.append([(zone.available.t_s[1], zone.spot_usd_h.value[0]) for zone in zones])
    alike = [sum(a == b for a, b in zip(firsts[0], later, strict=True)) for later in firsts[1:]]
    assert alike[0] >= 10  # about one start in thirty leaves no 15 hours
    assert 1 <= alike[1] <= 9


def test_a_zone_that_never_changes_has_one_row_of_a_trace(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{hour * 3600},a,{hour % 2},1" for hour in range(40)]
    path.write_text("\n".join(["t_s,zone,available,spot_usd_h", "0,b,0,0.5", *rows]))
    asked, calibration = cloud_of(small({"trace": str(path)})), expand(small())[0].calibration
    market = drawn(asked, 0, calibration).market
    assert [zone.available.at(50_000.0) for zone in market.zones if zone.name == "b"] == [0.0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"on_demand": "cpu"}, "no type 'cpu'"),
        ({"zones": {"a": {"region": "x", "type": "tpu", "spot_usd_h": 1.0}}}, "zones.a.type: no type 'tpu'"),
        ({"tick_s": 0.01}, "more than 100,000 ticks"),
        ({"tick": 5}, "tick"),
    ],
)
def test_mistakes_are_named(change, problem):
    with pytest.raises(ScenarioError, match=problem):
        small(change)


def test_a_deadline_that_cannot_be_met_and_a_missing_emulation_are_refused(twinbed, tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL))
    said = twinbed("run", str(path), "--set", "cloud.job.deadline_hours=3").refused
    assert "cloud.job.deadline_hours: 3 h of work" in said
    assert "do not fit before 3 h" in said
    assert "cloud.emulation: missing" in twinbed("run", str(path), "--backend", "testbed").refused


class Steady:
    """On demand from start to end, written by a user."""

    def __init__(self, terms: object) -> None:
        self.terms = terms

    def on_step(self, state) -> Decision:
        return Decision(np.full(1, ON_DEMAND), np.full(1, TAKE))


def test_a_policy_of_ones_own_runs(tmp_path):
    (run,) = run_scenario(small(policies=[f"{__file__}:Steady"]), RunStore(tmp_path))
    assert run.metrics["on_demand_h"] == pytest.approx(run.metrics["finish_h"])
    assert run.metrics["starts"] == 1


def test_training_is_as_long_as_the_work_compressed():
    asked = cloud_of(TESTBED.scenario)
    shared = drawn(asked, 0, TESTBED.calibration)
    pace = Pace(steps_per_s=17.0, cores={})
    program = training(shared, asked.emulation, pace)
    assert program.steps / pace.steps_per_s == pytest.approx(
        asked.job.hours * 3600 / asked.emulation.compression, rel=0.02
    )
    assert program.every / program.steps == pytest.approx(
        asked.job.checkpoint_s / 3600 / asked.job.hours, rel=0.1
    )
    short = asked.emulation.model_copy(update={"compression": 5000.0})
    with pytest.raises(ScenarioError, match=r"cloud\.emulation\.compression: the job would train"):
        training(shared, short, pace)


def test_four_of_five_cells_within_a_twentieth_agree():
    row = Compared("", "greedy", 0, (1.04, 2.0), ((1.0, 2.0), (1.0, 2.02)), (2.0, 2.0))
    assert row.agrees
    off = replace(row, twin=(1.06, 2.0))
    assert not off.agrees
    assert agree([row, row, row, row, off])
    assert not agree([row, row, row, off])
    assert result([row, off]).facts["cells"] == "1 of 2 agree"


def test_a_market_of_too_many_changes_is_refused_before_it_is_drawn():
    raw = copy.deepcopy(SMALL)
    raw["cloud"]["job"]["deadline_hours"], raw["cloud"]["tick_s"] = 1e12, 1e12
    with pytest.raises(ScenarioError, match=r"job\.deadline_hours: 1e\+12: .* give a shorter deadline"):
        build(raw)
