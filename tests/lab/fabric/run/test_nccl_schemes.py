"""One suite over every scheme: what faults of a port do to a training job."""

from __future__ import annotations

import pytest

from lab.ask.scenario import build, with_overrides
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from twin.fabric.model import Scheme
from twin.fabric.steps import BY_NCCL
from twinbed import ScenarioError

SHORT = {"NCCL_IB_TIMEOUT": 16, "NCCL_IB_RETRY_CNT": 1}
"""Queue pairs that give up after 0.44 s."""
JOB = {
    "parameters": 1e6, "micro_batch_s": 0.01, "data": 2, "iterations": 4000,
    "checkpoint": {"interval_s": 5.0, "save_s": 0.1, "init_s": 1.0},
}  # fmt: skip
FAULTS = {
    "shorter than the first rung": {"kind": "single", "at_s": 5.0, "down_s": 0.01},
    "between rungs": {"kind": "single", "at_s": 5.0, "down_s": 0.3},
    "past the error": {"kind": "single", "at_s": 5.0, "down_s": 15.0},
    "all ports at once": {"kind": "single", "at_s": 5.0, "what": "nic", "down_s": 15.0},
    "on the receiver only": {"kind": "single", "at_s": 5.0, "host": 1, "one_way": "in", "down_s": 15.0},
    "flapping faster than 5 s": {"kind": "flapping", "down_s": 2.0, "up_s": 2.0},
}


def run(store: RunStore, scheme: str, faults: dict[str, object], **nccl: object) -> Run:
    fabric = {
        "topology": {"hosts": 2},
        "nccl": {"variables": SHORT, **nccl},
        "training": JOB,
        "faults": faults,
    }
    scenario = build({"name": "ports", "fabric": fabric, "policies": [scheme]})
    return run_scenario(scenario, store, jobs=1)[0]


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("scheme", list(Scheme))
def test_a_job_ends_or_dies_but_never_hangs(tmp_path, scheme, faults):
    figures = run(RunStore(tmp_path), scheme, faults).metrics
    assert figures["failed"] in (0.0, 1.0)
    down_s = float(faults["down_s"])
    ends = down_s < 0.44 or scheme not in (Scheme.NONE, Scheme.BOND)
    if "what" in faults or faults["kind"] == "flapping":
        return
    if ends:
        assert figures["failed"] == 0.0
        assert figures["kept_share"] == 1.0
    if scheme in BY_NCCL and down_s > 0.44:
        assert figures["deaths"] == 0.0


def test_all_ports_at_once_end_a_job_that_nccl_meets_alone(tmp_path):
    for scheme in BY_NCCL:
        assert run(RunStore(tmp_path), scheme, FAULTS["all ports at once"]).metrics["deaths"] == 1


def test_host_edge_failover_is_faster_for_silences_below_the_error(tmp_path):
    faults = {"kind": "single", "at_s": 5.0, "down_s": 3.0}
    store = RunStore(tmp_path)
    took = {}
    for scheme in (Scheme.THORN, *BY_NCCL):
        usual = run(store, scheme, {"kind": "none"})
        took[scheme] = run(store, scheme, faults, variables={}).metrics["job_s"] - usual.metrics["job_s"]
    assert took[Scheme.THORN] < 1 < took[Scheme.NCCL_FAILOVER] == took[Scheme.NCCL_RECOVERY]


def test_a_version_without_failover_is_refused(tmp_path):
    words = r"^fabric.nccl.version: {} lacks NCCL_\w+, which came with {}; choose another version or scheme"
    with pytest.raises(ScenarioError, match=words.format("2.18.1", "2.29.7")):
        run(RunStore(tmp_path), Scheme.NCCL_FAILOVER, FAULTS["between rungs"], version="2.18.1")
    with pytest.raises(ScenarioError, match=words.format("2.29.7", "2.30.3")):
        run(RunStore(tmp_path), Scheme.NCCL_RECOVERY, FAULTS["between rungs"], version="2.29.7")


def test_a_queue_pair_that_never_ends_in_error_never_fails_over(tmp_path):
    with pytest.raises(ScenarioError, match="timeout: 0 never ends in the error that nccl-failover"):
        run(RunStore(tmp_path), Scheme.NCCL_FAILOVER, {"kind": "single"}, variables={"NCCL_IB_TIMEOUT": 0})


def test_collectives_go_on_at_half_the_rate(tmp_path):
    ring = {"operation": "all_reduce", "message_bytes": 100_000_000, "repeats": 2000}
    fabric = {"topology": {"hosts": 3}, "nccl": {"variables": SHORT}, "collective": ring}
    raw = {"name": "ring", "fabric": fabric, "policies": ["nccl-failover"]}
    whole, half = (
        run_scenario(with_overrides(build(raw), [f"fabric.faults={faults}"]), RunStore(tmp_path), jobs=1)[0]
        for faults in ("{kind: none}", "{kind: single, at_s: 0.1, down_s: 100}")
    )
    share = half.metrics["bus_bandwidth_p20_gbps"] / whole.metrics["bus_bandwidth_p20_gbps"]
    assert share == pytest.approx(0.5, rel=0.02)
    assert half.metrics["failed"] == 0


def test_a_collective_over_all_ports_meets_a_single_fault_in_its_middle(tmp_path):
    ring = {"operation": "all_reduce", "message_bytes": 100_000_000, "repeats": 1000}
    fabric = {"topology": {"hosts": 3}, "faults": {"kind": "single"}, "collective": ring}
    raw = {"name": "ring", "fabric": fabric, "policies": ["nccl-failover"]}
    (run,) = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert 499 <= int(run.frame("series")["duration_s"].argmax()) <= 501


def test_a_collective_that_an_error_ends_has_no_bandwidth_and_a_library_that_rebuilds_ends_it(tmp_path):
    ring = {"operation": "all_reduce", "message_bytes": 100_000_000, "repeats": 1000}
    faults = {"kind": "single", "down_s": 60.0}
    fabric = {"topology": {"hosts": 3}, "nccl": {"variables": SHORT}, "faults": faults, "collective": ring}
    raw = {"name": "ring", "fabric": fabric, "policies": ["none", "reroute"]}
    broken, rebuilt = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert broken.metrics["failed"] == 1
    assert broken.metrics["bus_bandwidth_mean_gbps"] == broken.metrics["bus_bandwidth_p20_gbps"] == 0
    assert rebuilt.metrics["failed"] == 0
    lasted_s = rebuilt.frame("series")["duration_s"]
    # 30 s until the library times out and 10 s to rebuild.
    assert lasted_s.max() == pytest.approx(40 + lasted_s.min())


def test_sends_say_that_they_have_no_nccl(tmp_path):
    fabric = {"faults": {"kind": "single"}, "sends": {"messages": 10}}
    raw = {"name": "sends", "fabric": fabric, "policies": ["nccl-failover", "none"]}
    ported, plain = run_scenario(build(raw), RunStore(tmp_path), jobs=1)
    assert ported.manifest["notes"] == ["nccl-failover: sends have no NCCL, so it does what `none` does."]
    assert not plain.manifest["notes"]


def test_sends_that_end_before_a_fault_begins_say_so(tmp_path):
    """The default is faults in turn, the first one after 20 s."""
    raw = {"name": "sends", "fabric": {"sends": {"messages": 10}}, "policies": ["none", "thorn"]}
    for run in run_scenario(build(raw), RunStore(tmp_path), jobs=1):
        assert run.metrics["outages"] == 0
        (note,) = run.manifest["notes"]
        assert note.startswith("A measurement met no fault")


def test_a_version_that_yaml_takes_for_a_number_is_refused_with_the_cure():
    raw = {"name": "ports", "fabric": {"training": JOB}, "policies": ["thorn"]}
    with pytest.raises(ScenarioError, match=r"fabric.nccl.version: expected text in quotes, not 2.18$"):
        with_overrides(build(raw), ["fabric.nccl={version: 2.18}"])
