"""Read a user's own Mininet topology (mininet.topo.Topo) as a fabric's plan.

For: `twinbed testbed up --topo file.py:MyTopo`. Hosts stay hosts, and switches become ToRs and spines.
Not for: raising the fabric (up.py), or Mininet's addresses, controllers and switch types: a fabric has its
own. Source: Mininet, mininet/topo.py.

Without a link between two switches, every host must be linked to every switch. Otherwise switches without
hosts are spines, every other switch is linked to every spine, and hosts with a switch in common form a rack.
Anything that a fabric cannot do is refused in one line that names it. Nothing is ignored silently.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from twinbed import ScenarioError

_OWN = frozenset({"node1", "node2", "port1", "port2", "isSwitch"})
"""Keys that Mininet itself adds to a link or a switch."""


@dataclass(frozen=True, slots=True)
class TopoPlan:
    """A topology. hosts, tors, spines: names, rack by rack in Mininet's order. racks: number of racks.
    rate_bps: rate of every link, bit/s, or None."""

    hosts: tuple[str, ...]
    tors: tuple[str, ...]
    rate_bps: float | None
    racks: int = 1
    spines: tuple[str, ...] = ()

    def options(self) -> dict[str, int | float | None]:
        """Return the plan's keys that the topology decides."""
        counts = {"hosts": len(self.hosts), "tors": len(self.tors), "racks": self.racks}
        return {**counts, "spines": len(self.spines), "rate_bps": self.rate_bps}


def read(spec: str) -> TopoPlan:
    """Return the plan of a topology. spec: `FILE.py:CLASS`.

    The file is run, as `mn --custom` does. Raises ScenarioError naming the file and the reason.
    """
    return plan_of(_built(spec), spec)


def plan_of(topo: Topo, name: str) -> TopoPlan:
    """Return the plan of a built topology. Raises ScenarioError for features that a fabric does not have."""
    hosts, switches = tuple(topo.hosts()), tuple(topo.switches())
    for node in (*hosts, *switches):
        _refuse(f"{name}: {node}", topo.nodeInfo(node), allowed=frozenset())
    links = topo.links(withInfo=True)
    for near, far, options in links:
        if not topo.isSwitch(near) and not topo.isSwitch(far):
            raise ScenarioError(f"{name}: link {near}-{far} joins two hosts; link hosts to switches only")
        _refuse(f"{name}: link {near}-{far}", options, allowed=frozenset({"bw"}))
    counts = Counter(frozenset((near, far)) for near, far, _ in links)
    above = {host: [switch for switch in switches if counts[frozenset((host, switch))]] for host in hosts}
    between = [(near, far) for near, far, _ in links if topo.isSwitch(near) and topo.isSwitch(far)]
    racks, spines = [list(switches)], list[str]()
    if between:
        racks = _racks(above)
        spines = [switch for switch in switches if all(switch not in rack for rack in racks)]
    for near, far in between:
        if (near in spines) == (far in spines):
            kind = "spines" if near in spines else "switches that have hosts"
            raise ScenarioError(
                f"{name}: link {near}-{far} joins two {kind}; link those with hosts to those without"
            )
    housed = [[host for host in hosts if not between or {*above[host]} & {*rack}] for rack in racks]
    for near, far in _wanted(racks, housed, spines):
        if (count := counts[frozenset((near, far))]) != 1:
            every = "ToR to every spine" if far in spines else "host to every switch of its rack"
            raise ScenarioError(
                f"{name}: {near} has {count} links to {far}; a fabric has one from every {every}"
            )
    for host in {*hosts}.difference(*housed):
        raise ScenarioError(f"{name}: {host} has no link to a switch; link it to those of a rack")
    for rack, inside in zip(racks, housed, strict=True):
        if (len(rack), len(inside)) != (len(racks[0]), len(housed[0])):
            raise ScenarioError(
                f"{name}: {rack[0]} is in a rack of {len(rack)} switches and {len(inside)} hosts, but "
                f"{racks[0][0]} in one of {len(racks[0])} and {len(housed[0])}; make racks alike"
            )
    rates = {options.get("bw") for _, _, options in links}
    if len(rates) > 1:
        raise ScenarioError(f"{name}: bw differs between links; a fabric has one rate for all uplinks")
    rate = rates.pop() if rates else None
    if rate is not None and not (isinstance(rate, int | float) and 0 < rate < math.inf):
        raise ScenarioError(f"{name}: bw is {rate!r}; give a number of Mbit/s above 0")
    rate_bps = None if rate is None else float(rate) * 1e6
    return TopoPlan(tuple(chain(*housed)), tuple(chain(*racks)), rate_bps, len(racks), tuple(spines))


def _racks(above: dict[str, list[str]]) -> list[list[str]]:
    """Return the switches of each rack. above: host → its switches. Hosts that share one share a rack."""
    rack_of: dict[str, list[str]] = {}
    for mine in above.values():
        rack = [*dict.fromkeys(chain(*(rack_of.get(switch, [switch]) for switch in mine)))]
        rack_of |= dict.fromkeys(rack, rack)
    return list({id(rack): rack for rack in rack_of.values()}.values())


def _wanted(racks: list[list[str]], housed: list[list[str]], spines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the lower and the upper end of every link that a fabric of these racks and spines has."""
    for rack, hosts in zip(racks, housed, strict=True):
        yield from product(hosts, rack)
        yield from product(rack, spines)


def _refuse(place: str, options: dict[str, Any], *, allowed: frozenset[str]) -> None:
    unknown = sorted(options.keys() - _OWN - allowed)
    if unknown:
        can = f"; only {', '.join(sorted(allowed))} is" if allowed else ""
        raise ScenarioError(f"{place}: {unknown[0]}= is not supported by a fabric{can}; leave it out")


def _built(spec: str) -> Topo:
    file, _, name = spec.rpartition(":")
    if not file or not name:
        raise ScenarioError(f"topo: {spec!r} names no class; give FILE.py:CLASS")
    loader = importlib.util.spec_from_file_location("twinbed_user_topo", Path(file))
    if loader is None or loader.loader is None:
        raise ScenarioError(f"topo: {file} is not a Python file; give FILE.py:CLASS")
    try:
        Path(file).open("rb").close()
    except OSError as error:
        raise ScenarioError(f"topo: {file} cannot be read ({error.strerror})") from error
    module = importlib.util.module_from_spec(loader)
    try:
        loader.loader.exec_module(module)
        kind = getattr(module, name, None)
        topo = kind() if inspect.isclass(kind) and issubclass(kind, Topo) else None
    except Exception as error:  # a user's file may raise anything
        reason = " ".join(str(error).split())
        raise ScenarioError(f"topo: {file} fails: {type(error).__name__}: {reason}") from error
    if topo is None:
        raise ScenarioError(f"topo: {file} has no class {name} that is a mininet.topo.Topo")
    return topo
