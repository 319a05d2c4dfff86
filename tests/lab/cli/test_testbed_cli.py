"""`twinbed testbed`: the verbs around the machine, with what they find made up or real."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from control.fabric import BfdTimers
from testbed.containers import doctor, leftovers
from testbed.containers.cgroup import drivers
from testbed.containers.doctor import Finding
from testbed.containers.leftovers import Run
from testbed.fabric import capture as fabric_capture
from testbed.fabric import doctor as fabric_doctor
from testbed.fabric import faults
from testbed.fabric import leftovers as fabric_leftovers
from testbed.fabric import up as fabric_up
from testbed.fabric.capture import CapturedPacket
from testbed.fabric.leftovers import Standing
from testbed.fabric.model import Fabric, Plan
from testbed.fabric.plan import fabric_of
from twinbed import BackendError

RUNS = (
    Run(
        "run-10-20-0", alive=True, pid=10, groups=3, processes=2, networks=0, containers=0, attached=0,
        folders=0,
    ),
    Run(
        "run-11-20-0", alive=False, pid=11, groups=3, processes=0, networks=2, containers=1, attached=1,
        folders=1,
    ),
)  # fmt: skip
FABRIC = Standing(
    "lab1", alive=True, pid=None, hosts=4, tors=2, spines=0, namespaces=10, daemons=18, processes=18
)


@pytest.fixture
def fabrics(monkeypatch):
    """Fabrics on this machine, none at first; `down` takes the one that is named, or all."""
    there: list[Standing] = []

    def down(name: str | None, *, everything: bool) -> tuple[Standing, ...]:
        gone = tuple(each for each in there if everything or each.name == name)
        there[:] = [each for each in there if each not in gone]
        return gone

    monkeypatch.setattr(fabric_leftovers, "standing", lambda: tuple(there))
    monkeypatch.setattr(fabric_leftovers, "down", down)
    monkeypatch.setattr(fabric_up, "load", lambda name: fabric_of(Plan(name=name)))
    monkeypatch.setattr(fabric_up, "converged", lambda fabric: [])
    return there


@pytest.fixture
def here(monkeypatch, fabrics):
    """A machine with the two runs above; what `down` was asked for."""
    asked: list[bool] = []

    def down(driver: object, *, live: bool) -> tuple[Run, ...]:
        asked.append(live)
        return RUNS if live else RUNS[1:]

    monkeypatch.setattr(drivers, "detect", lambda: None)
    monkeypatch.setattr(leftovers, "runs", lambda driver: RUNS)
    monkeypatch.setattr(leftovers, "down", down)
    return asked


def test_status_lists_runs_and_says_how_to_remove_what_is_left(twinbed, here):
    shown = twinbed("testbed", "status")
    assert shown.code == 1
    assert "left over" in shown.out
    assert "twinbed testbed down removes what is left over." in shown.out
    rows = twinbed("testbed", "status", "--format", "json").rows
    assert [each["state"] for each in rows] == ["live", "left over"]
    assert rows[1]["networks"] == 2


def test_one_of_a_thing_is_not_several(twinbed, here):
    shown = " ".join(twinbed("testbed", "status").out.split())
    for words in ("3 cgroups", "1 OCI bundle,", "1 limit to restore,", "1 temporary folder"):
        assert words in shown
    assert "temporary folders" not in shown


def test_a_run_of_which_only_its_lock_is_left_does_not_look_empty(twinbed, here, monkeypatch):
    lock = replace(RUNS[1], groups=0, processes=0, networks=0, containers=0, attached=0, folders=0)
    monkeypatch.setattr(leftovers, "runs", lambda driver: (lock,))
    assert "files in /run/twinbed" in " ".join(twinbed("testbed", "status").out.split())


def test_status_of_a_tidy_machine_is_no_problem(twinbed, here, monkeypatch):
    monkeypatch.setattr(leftovers, "runs", lambda driver: RUNS[:1])
    assert twinbed("testbed", "status").code == 0


@pytest.mark.parametrize("verb", ["status", "down"])
def test_a_run_whose_owner_cannot_be_seen_is_named_with_what_ends_it(twinbed, here, monkeypatch, verb):
    unseen = replace(RUNS[0], alive=None, pid=None)
    monkeypatch.setattr(leftovers, "runs", lambda driver: (unseen,))
    shown = twinbed("testbed", verb)
    assert shown.code == 0
    assert f"{unseen.name}: 2 processes inside, and its lock is not in this /run" in " ".join(
        shown.out.split()
    )
    assert "twinbed testbed down --all" in " ".join(shown.out.split())


@pytest.mark.parametrize(("arguments", "live", "count"), [((), False, "1"), (("--all",), True, "2")])
def test_down_removes_leftovers_and_live_runs_only_with_all(twinbed, here, arguments, live, count):
    ended = twinbed("testbed", "down", *arguments)
    assert (ended.code, here) == (0, [live])
    assert f"{count} removed." in ended.out


def test_status_of_a_fabric_says_what_it_has_and_lacks(twinbed, here, fabrics, monkeypatch):
    monkeypatch.setattr(leftovers, "runs", lambda driver: ())
    fabrics.append(FABRIC)
    whole = twinbed("testbed", "status")
    assert whole.code == 0
    assert "4 hosts, 2 ToRs, 18 daemons" in " ".join(whole.out.split())
    monkeypatch.setattr(fabric_up, "converged", lambda fabric: ["a route", "another"])
    broken = twinbed("testbed", "status", "--format", "json")
    assert broken.code == 1
    (row,) = json.loads(broken.out)["rows"]
    assert (row["pillar"], row["run"], row["missing"], row["daemons"]) == ("fabric", "lab1", 2, 18)


def test_down_takes_a_fabric_only_by_its_name_or_with_all(twinbed, here, fabrics):
    fabrics.append(FABRIC)
    left = twinbed("testbed", "down")
    assert "Still up: twinbed testbed down --name lab1 removes it." in left.out
    assert fabrics == [FABRIC]
    assert "1 removed." in twinbed("testbed", "down", "--name", "lab1").out
    assert (fabrics, here) == ([], [False])
    fabrics.append(FABRIC)
    assert "3 removed." in twinbed("testbed", "down", "--all").out
    assert "not both" in twinbed("testbed", "down", "--name", "lab1", "--all").refused


def test_up_makes_what_the_file_and_the_options_say(twinbed, tmp_path, monkeypatch):
    made: list[Plan] = []

    def make(plan: Plan, *, lasting: bool, progress: object) -> Fabric:
        assert lasting
        made.append(plan)
        return fabric_of(plan)

    monkeypatch.setattr(fabric_up, "up", make)
    file = tmp_path / "plan.yaml"
    file.write_text("name: lab1\nhosts: 4\nbfd: 3x100\ntenants: [7, 8]\nstorage: 1\npeer_link: true\n")
    shown = twinbed("testbed", "up", file, "--hosts", 3, "--fast-path")
    wanted = Plan("lab1", hosts=3, storage=1, tenants=(7, 8), peer_link=True, bfd=BfdTimers(0.1, 3))
    assert made == [replace(wanted, fast_path=True)]
    assert "tb-lab1-h2e0" in shown.out
    assert "sudo twinbed testbed down --name lab1" in shown.out
    rows = twinbed("testbed", "up", "--format", "json").rows
    assert [each["address"] for each in rows] == ["10.0.1.1/16", "10.0.2.1/16"]


TOPO = """
from mininet.topo import Topo
class Mine(Topo):
    def build(self):
        for switch in (self.addSwitch("left"), self.addSwitch("right")):
            for name in ("a", "b", "c"):
                self.addLink(self.addHost(name), switch, bw=100)
"""


def test_up_takes_a_users_own_topology_and_says_which_node_is_which(twinbed, tmp_path, monkeypatch):
    made: list[Plan] = []
    monkeypatch.setattr(fabric_up, "up", lambda plan, **_: made.append(plan) or fabric_of(plan))
    (tmp_path / "mine.py").write_text(TOPO)
    spec = f"{tmp_path / 'mine.py'}:Mine"
    shown = twinbed("testbed", "up", "--topo", spec, "--name", "lab1")
    names = ("a", "b", "c", "left", "right")
    assert made == [Plan("lab1", hosts=3, tors=2, rate_bps=1e8, names=names)]
    assert "c is tb-lab1-h2." in shown.out
    assert "right is tb-lab1-t1." in shown.out
    assert "--topo decides hosts" in twinbed("testbed", "up", "--topo", spec, "--hosts", 3).refused
    (tmp_path / "mine.py").write_text(TOPO.replace(', self.addSwitch("right")', ","))
    assert twinbed("testbed", "up", "--topo", spec).refused.startswith(f"{spec}: tors: 1 is not possible")


def test_a_topology_has_the_tenants_and_storage_of_a_plan_beside_it(twinbed, tmp_path, monkeypatch):
    made: list[Plan] = []
    monkeypatch.setattr(fabric_up, "up", lambda plan, **_: made.append(plan) or fabric_of(plan))
    (tmp_path / "mine.py").write_text(TOPO)
    (tmp_path / "plan.yaml").write_text("tenants: [7, 8]\nstorage: 1\n")
    shown = twinbed("testbed", "up", tmp_path / "plan.yaml", "--topo", f"{tmp_path / 'mine.py'}:Mine")
    names = ("a", "b", "c", "left", "right")
    assert made == [Plan(hosts=3, tors=2, rate_bps=1e8, tenants=(7, 8), storage=1, names=names)]
    assert "right is tb-fabric-t1." in shown.out


def test_verbs_say_which_node_of_a_users_own_topology_a_place_is(twinbed, broken, monkeypatch):
    """Mininet counts hosts and switches from 1, so its h1 is not the fabric's."""
    plan = Plan(hosts=2, tors=2, storage=1, names=("h1", "h2", "s1", "s2"))
    monkeypatch.setattr(fabric_up, "load", lambda name: fabric_of(plan))
    monkeypatch.setattr(fabric_capture, "capture", lambda *_, **__: ((), 0))
    shown = twinbed("testbed", "graph").out
    assert "t1[t1 is s2] ---|tor1| h0[h0 is h1]" in shown
    assert "h2[(h2 storage)]" in shown
    all_names = "; twinbed testbed graph shows all names\n"
    both = "h1 is h2 of your topology, t0 is s1 of your topology"
    assert twinbed("testbed", "fault", "h1:tor0").err == both + all_names
    assert twinbed("testbed", "capture", "h1e0").err == "h1 is h2 of your topology" + all_names
    assert twinbed("testbed", "capture", "h2").err == ""
    said = twinbed("testbed", "exec", "s9", "--", "true").refused
    assert said.endswith("has no 's9'; it has h0 (h1), h0e0, h1 (h2), h1e0, h2, h2e0, t0 (s1), t1 (s2)")


def test_verbs_take_the_names_of_a_users_own_topology(twinbed, broken, monkeypatch):
    names = ("web", "h1", "s1", "leaf", "top")
    plan = Plan(hosts=2, tors=2, storage=1, racks=1, spines=1, names=names)
    monkeypatch.setattr(fabric_up, "load", lambda name: fabric_of(plan))
    assert twinbed("testbed", "fault", "leaf:web").out.startswith("h0:tor1 is impaired.")
    assert twinbed("testbed", "fault", "top:leaf").out.startswith("t1:spine0 is impaired.")
    assert len(broken) == 2
    taken = []
    monkeypatch.setattr(fabric_capture, "capture", lambda _, place, **__: (taken.append(place) or (), 0))
    # The fabric has an h1 of its own, and no s1.
    for place in ("leaf", "s1", "h1", "h2", "web:s1"):
        assert twinbed("testbed", "capture", place).code == 0
    assert taken == ["t1", "t0", "h1", "h2", "h0:tor0"]
    for wrong in ("web:h1", "web:top", "web:nil"):
        assert f"'{wrong}' is no link" in twinbed("testbed", "fault", wrong).refused


def test_capture_shows_the_columns_that_the_packets_have(twinbed, fabrics, monkeypatch):
    packet = CapturedPacket(0.0015, "tor0", "VXLAN", "10.255.0.1", "10.255.0.2", 148, vni=100)
    asked: list[tuple[str, float, int]] = []

    def take(fabric: Fabric, place: str, *, seconds: float, count: int, out: Path | None) -> object:
        asked.append((place, seconds, count))
        return (packet,), 3

    monkeypatch.setattr(fabric_capture, "capture", take)
    shown = twinbed("testbed", "capture", "h0:tor0", "--seconds", 2, "--count", 5).out
    assert asked == [("h0:tor0", 2.0, 5)]
    assert "VNI" in shown
    assert "PSN" not in shown
    assert "1 packet decoded, 3 of other protocols." in shown
    (row,) = twinbed("testbed", "capture", "h0", "--format", "json").rows
    assert (row["at_ms"], row["vni"], row["sequence"]) == (1.5, 100, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host: 3", "plan.yaml: host: unknown key; did you mean 'hosts'?"),
        ("hosts: 1", "plan.yaml: hosts: 1 is not possible; take 2 to 200"),
        ("bfd: 50ms", "plan.yaml: bfd: expected MULTIPLIERxINTERVAL with the interval in ms, as 5x50"),
        ("- hosts", "plan.yaml: expected keys, as `hosts: 4`"),
        ("hosts: two", "plan.yaml: hosts: "),
        ("impairments: [{loss: 5%}]", "plan.yaml: impairments.0.link: missing"),
        ("impairments: [{link: h0:tor0, loss: 5}]", "plan.yaml: impairments.0.loss: expected text in quotes"),
        ("impairments: [{link: h0:tor0, at: 5%}]", "plan.yaml: impairments.0.at: 5%: expected a number and"),
        ("impairments: [{link: h0:tor0, fort: 5s}]", "impairments.0.fort: unknown key; did you mean 'for'?"),
        ("impairments: [{link: h0:tor2}]", "plan.yaml: impairments.0.link: h0:tor2: tor: 2 is not possible"),
        ("impairments: [{link: h0:tor1}, {link: h0:tor1}]", "impairments.1: h0:tor1 is impaired already"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_its_key(twinbed, tmp_path, text, said):
    (tmp_path / "plan.yaml").write_text(text)
    assert said in twinbed("testbed", "up", tmp_path / "plan.yaml").refused


def test_a_command_that_the_machine_lacks_is_named(twinbed, fabrics):
    said = twinbed("testbed", "exec", "h0e0", "--", "no-such-command").refused
    assert said == "no-such-command: this machine has no such command"


def test_up_without_root_says_so(twinbed, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert twinbed("testbed", "up").refused == "a fabric needs root: run the command with sudo"


def test_a_machine_without_cgroups_is_refused_in_one_line(twinbed, monkeypatch):
    def refuse() -> None:
        raise BackendError("no cgroup controller cpu is mounted here")

    monkeypatch.setattr(drivers, "detect", refuse)
    assert twinbed("testbed", "down").refused == "no cgroup controller cpu is mounted here"


@pytest.mark.parametrize(("user", "cure"), [(1000, "run it as root"), (0, "real_time: false")])
def test_root_to_whom_real_time_is_refused_is_not_sent_to_root(monkeypatch, user, cure):
    """A cgroup may have no real-time share."""
    monkeypatch.setattr(fabric_doctor, "succeeds", lambda *command: False)
    monkeypatch.setattr(fabric_doctor.os, "geteuid", lambda: user)
    assert cure in fabric_doctor._real_time().cure


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("missing", 1), ("not allowed", 1)])
def test_doctor_ends_with_1_where_something_needed_is_missing(twinbed, monkeypatch, status, code):
    findings = (
        Finding("cgroups", status, "found this", "for that", "" if code == 0 else "do so", needed=True),  # type: ignore[arg-type]
        Finding("runc", "missing", "not installed", "containers", "sudo apt install runc"),
    )
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    monkeypatch.setattr(fabric_doctor, "examine", lambda: ())
    shown = twinbed("testbed", "doctor")
    assert shown.code == code
    assert "sudo apt install runc" in shown.out
    assert ("The container testbed can run here" in shown.out) == (code == 0)
    rows = list(csv.DictReader(twinbed("testbed", "doctor", "--format", "csv").out.splitlines()))
    assert [each["feature"] for each in rows] == ["cgroups", "runc"]
    assert [each["needed"] for each in rows] == ["True", "False"]
    assert "| runc | missing |" in twinbed("testbed", "doctor", "--format", "markdown").out


@pytest.mark.root
def test_the_verbs_work_on_this_machine(twinbed, cgroups):
    assert "The container testbed can run here." in twinbed("testbed", "doctor").out
    assert twinbed("testbed", "status").code in (0, 1)
    assert twinbed("testbed", "down").code == 0


@pytest.fixture
def broken(monkeypatch):
    """Record the faults on the links of a fabric that is up, in order."""
    done: list[tuple[object, ...]] = []
    monkeypatch.setattr(fabric_up, "load", lambda name: fabric_of(Plan(name)))
    monkeypatch.setattr(fabric_doctor, "has_netem", lambda: False)
    for verb in ("inject", "lose", "clear", "mend", "degrade"):
        monkeypatch.setattr(
            faults, verb, lambda _, fault, *rest, verb=verb: done.append((verb, fault.silent, *rest))
        )
    return done


def test_fault_breaks_a_link_until_it_is_cleared(twinbed, broken):
    said = twinbed("testbed", "fault", "h0:tor1", "--loss", "5%").out
    assert broken == [("lose", True, 0.05)]
    assert "--clear" in said
    broken.clear()
    twinbed("testbed", "fault", "h0:tor1", "--clear")
    repair = [("mend", True), ("clear", True), ("clear", False)]
    assert broken == repair
    broken.clear()
    twinbed("testbed", "fault", "h0:tor1", "--silent", "--flap", "1ms", "--for", "20ms")
    assert broken[0] == ("inject", True)
    assert [verb for verb, _ in broken[-3:]] == ["mend", "clear", "clear"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("h0:tor1", "--clear", "--loss", "3%"), "--clear only repairs h0:tor1; leave out --loss"),
        (("h0:tor1", "--clear", "--one-way", "out"), "leave out --one-way"),
        (("h00:tor1",), "'h00:tor1' is no link"),
    ],
)
def test_fault_ignores_no_option_and_no_digit(twinbed, broken, options, said):
    failed = twinbed("testbed", "fault", *options)
    assert failed.code == 2
    assert said in failed.err
    assert broken == []


def test_fault_delays_and_corrupts_where_the_kernel_has_netem(twinbed, broken, monkeypatch):
    monkeypatch.setattr(fabric_doctor, "has_netem", lambda: True)
    options = ("--delay", "2ms", "--corrupt", "1%", "--loss", "3%")
    assert twinbed("testbed", "fault", "h0:tor1", *options).code == 0
    assert broken == [("lose", True, 0.03), ("degrade", True, 0.002, 0.01)]


@pytest.mark.parametrize(
    "options",
    [
        ("h0:tor1", "--corrupt"),
        ("--corrupt", "h0:tor1"),
        ("--corrupt", "--delay", "2ms", "h0:tor1"),
        ("h0:tor1", "--corrupt", "1%"),
    ],
)
def test_corrupt_without_a_share_takes_one_in_a_hundred(twinbed, broken, monkeypatch, options):
    monkeypatch.setattr(fabric_doctor, "has_netem", lambda: True)
    assert twinbed("testbed", "fault", *options).code == 0
    ((verb, _, _, share),) = broken
    assert (verb, share) == ("degrade", 0.01)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("tor1",), "h0:tor1"),
        (("h9:tor0",), "h9:tor0: host: 9 is not possible; take 0 to 1"),
        (("h0:tor1", "--loss", "5"), "5%"),
        (("h0:tor1", "--flap", "soon"), "flap: soon: expected a number and a unit"),
        (("h0:tor1", "--loss", "0%"), "loss: 0% is no share"),
        (("h0:tor1", "--silent", "--loss", "5%"), "leave out loss"),
        (("h0:tor1", "--delay", "2ms"), "the VM's has it (python -m testbed.vm -- COMMAND)"),
        (("h0:tor1", "--corrupt", "1%"), "need netem"),
        (("h0:tor1", "--one-way", "up"), "'out' or 'in'"),
    ],
)
def test_fault_refuses_what_it_cannot_do(twinbed, broken, options, said):
    assert said in twinbed("testbed", "fault", *options).refused
    assert broken == []


def test_graph_shows_every_link(twinbed, broken):
    shown = twinbed("testbed", "graph").out
    assert "t1[t1] ---|tor1| h0[h0]" in shown
    assert "h1 ---|vf0| h1e0([h1e0 10.0.2.1 VNI 100])" in shown
    assert shown.count("---") == 2 * 2 + 2


def test_graph_shows_tenants_storage_and_the_link_between_the_tors(twinbed, monkeypatch):
    plan = Plan(storage=1, tenants=(100, 200), peer_link=True)
    monkeypatch.setattr(fabric_up, "load", lambda name: fabric_of(plan))
    shown = twinbed("testbed", "graph").out
    assert "t0[t0] ---|peer| t1[t1]" in shown
    assert "t1[t1] ---|tor1| h2[(h2 storage)]" in shown
    assert "h2 ---|vf1| h2e1([h2e1 10.0.3.2 VNI 200])" in shown
    assert shown.count("---") == 1 + 3 * 2 + 3 * 2


def test_graph_and_faults_know_racks_and_spines(twinbed, broken, monkeypatch):
    plan = Plan(hosts=2, tors=4, racks=2, spines=2, peer_link=True)
    monkeypatch.setattr(fabric_up, "load", lambda name: fabric_of(plan))
    shown = twinbed("testbed", "graph").out
    assert "t2[t2] ---|peer| t3[t3]" in shown
    assert "s1[s1] ---|spine1| t2[t2]" in shown
    assert "t3[t3] ---|tor3| h1[h1]" in shown
    assert shown.count("---") == 2 + 4 * 2 + 2 * 2 + 2
    assert twinbed("testbed", "fault", "t2:spine1", "--silent").code == 0
    assert broken == [("inject", True)]
    assert "h1:tor: 0 is not possible; take 2 to 3" in twinbed("testbed", "fault", "h1:tor0").refused
