"""A user's own Mininet topology: what becomes a fabric, and what is refused by name."""

from __future__ import annotations

from itertools import chain

import pytest
from mininet.topo import Topo

from testbed.fabric.model import Plan
from testbed.fabric.topo import TopoPlan, plan_of, read
from twinbed import ScenarioError


def edge(hosts=3, tors=2, host_options=None, **link) -> Topo:
    """Return a topology in which every host is linked to every switch."""
    topo = Topo()
    for number in range(hosts):
        topo.addHost(f"h{number}", **(host_options or {}))
    for number in range(tors):
        tor = topo.addSwitch(f"s{number}")
        for host in topo.hosts():
            topo.addLink(host, tor, **link)
    return topo


def test_hosts_stay_hosts_and_switches_become_tors() -> None:
    planned = plan_of(edge(bw=100), "mine")
    assert planned == TopoPlan(("h0", "h1", "h2"), ("s0", "s1"), 1e8)
    assert Plan(**planned.options()) == Plan(hosts=3, tors=2, rate_bps=1e8)


def test_links_without_a_rate_are_as_fast_as_the_machine() -> None:
    assert plan_of(edge(), "mine").rate_bps is None


def with_link(*ends, topo=None, **options) -> Topo:
    topo = topo or edge()
    topo.addLink(*ends, **options)
    return topo


def without_a_link() -> Topo:
    topo = edge(tors=1)
    topo.addSwitch("s1")
    return topo


@pytest.mark.parametrize(
    ("topo", "message"),
    [
        (edge(loss=1), "link h0-s0: loss= is not supported by a fabric; only bw is"),
        (edge(delay="5ms", bw=10), "link h0-s0: delay= is not supported"),
        (edge(bw="fast"), "bw is 'fast'; give a number of Mbit/s above 0"),
        (edge(host_options={"ip": "10.0.0.1/8"}), "h0: ip= is not supported by a fabric; leave it out"),
        (with_link("s0", "s1"), "link s0-s1 joins two switches that have hosts"),
        (with_link("h0", "h1"), "link h0-h1 joins two hosts"),
        (with_link("h0", "s1"), "h0 has 2 links to s1; a fabric has one"),
        (without_a_link(), "h0 has 0 links to s1"),
        (with_link("h0", "s0", topo=edge(hosts=1, tors=1, bw=10), bw=20), "h0 has 2 links"),
    ],
)
def test_what_a_fabric_cannot_do_is_refused_by_name(topo, message) -> None:
    with pytest.raises(ScenarioError, match=f"^mine: {message}"):
        plan_of(topo, "mine")


def test_links_of_different_rates_are_refused() -> None:
    topo = edge(tors=1, bw=10)
    topo.addSwitch("s1")
    for host in topo.hosts():
        topo.addLink(host, "s1", bw=20)
    with pytest.raises(ScenarioError, match="bw differs between links"):
        plan_of(topo, "mine")


TEXT = """
from mininet.topo import Topo
class Mine(Topo):
    def build(self):
        tor = [self.addSwitch(name) for name in ("left", "right")]
        for name in ("a", "b"):
            self.addHost(name)
            for switch in tor:
                self.addLink(name, switch)
class Wrong(Topo):
    def build(self, n):
        pass
class Reads(Topo):
    def build(self):
        open("/none/links.txt")
"""


def test_a_file_and_a_class_name_a_topology(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    assert read(f"{path}:Mine") == TopoPlan(("a", "b"), ("left", "right"), None)
    for spec, message in (
        (f"{path}:Other", "has no class Other that is a mininet.topo.Topo"),
        (f"{path}:Wrong", "fails: TypeError: .*argument: 'n'"),
        (f"{path}:Reads", "mine.py fails: FileNotFoundError: .*'/none/links.txt'"),
        (f"{path}", "names no class; give FILE.py:CLASS"),
        (f"{tmp_path}/none.py:Mine", "none.py cannot be read"),
        (f"{tmp_path}/mine.txt:Mine", "is not a Python file"),
    ):
        with pytest.raises(ScenarioError, match=message):
            read(spec)


def leaf_spine(racks=2, tors=2, hosts=2, spines=2, *, bw=None) -> Topo:
    """Return racks of hosts and switches, joined by spines. Hosts of the racks take turns in their order."""
    topo, options = Topo(), {} if bw is None else {"bw": bw}
    above = [topo.addSwitch(f"spine{number}") for number in range(spines)]
    leaves = [[topo.addSwitch(f"leaf{rack}{tor}") for tor in range(tors)] for rack in range(racks)]
    for number in range(racks * hosts):
        host = topo.addHost(f"h{number}")
        for leaf in leaves[number % racks]:
            topo.addLink(host, leaf, **options)
    for leaf in chain(*leaves):
        for spine in above:
            topo.addLink(leaf, spine, **options)
    return topo


def test_switches_without_hosts_become_spines_and_hosts_stand_rack_by_rack() -> None:
    planned = plan_of(leaf_spine(bw=10), "mine")
    tors = ("leaf00", "leaf01", "leaf10", "leaf11")
    assert planned == TopoPlan(("h0", "h2", "h1", "h3"), tors, 1e7, 2, ("spine0", "spine1"))
    assert Plan(**planned.options()) == Plan(hosts=4, tors=4, racks=2, spines=2, rate_bps=1e7)


def lacking(link, topo) -> Topo:
    """Return the topology without its links between these two nodes."""
    smaller = Topo()
    for node in topo.nodes():
        (smaller.addSwitch if topo.isSwitch(node) else smaller.addHost)(node)
    for near, far in topo.links():
        if {near, far} != {*link}:
            smaller.addLink(near, far)
    return smaller


def with_host(*leaves) -> Topo:
    topo = leaf_spine()
    topo.addHost("more")
    for leaf in leaves:
        topo.addLink("more", leaf)
    return topo


@pytest.mark.parametrize(
    ("topo", "message"),
    [
        (with_link("leaf00", "leaf01", topo=leaf_spine()), "link leaf00-leaf01 joins two switches that have"),
        (with_link("spine0", "spine1", topo=leaf_spine()), "link spine0-spine1 joins two spines"),
        (lacking(("leaf01", "spine1"), leaf_spine()), "leaf01 has 0 links to spine1; .* every ToR to every"),
        (with_link("leaf01", "spine1", topo=leaf_spine()), "leaf01 has 2 links to spine1"),
        (lacking(("h0", "leaf01"), leaf_spine()), "h0 has 0 links to leaf01; .* every switch of its rack"),
        (with_host("leaf00", "leaf10"), "h0 has 0 links to leaf10"),
        (with_host("leaf00", "leaf01"), "leaf10 is in a rack of 2 switches and 2 hosts, but leaf00 in"),
        (with_host(), "more has no link to a switch"),
    ],
)
def test_other_forms_of_racks_are_refused_by_the_link(topo, message) -> None:
    with pytest.raises(ScenarioError, match=f"^mine: {message}"):
        plan_of(topo, "mine")
