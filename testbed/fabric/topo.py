"""Read a user's own Mininet topology (mininet.topo.Topo) as a fabric's plan.

For: `twinbed testbed up --topo file.py:MyTopo`. Hosts stay hosts and switches become ToRs. Not for: raising
the fabric (up.py), or Mininet's addresses, controllers and switch types: a fabric has its own. Source:
Mininet, mininet/topo.py.

A fabric has one tier of switches and an uplink from every host to every ToR, so a Topo must be of that form.
Anything that a fabric cannot do is refused in one line that names it. Nothing is ignored silently.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from twinbed import ScenarioError

_OWN = frozenset({"node1", "node2", "port1", "port2", "isSwitch"})
"""Keys that Mininet itself adds to a link or a switch."""


@dataclass(frozen=True, slots=True)
class TopoPlan:
    """A topology. hosts, tors: names in Mininet's order. rate_bps: rate of every link, bit/s, or None."""

    hosts: tuple[str, ...]
    tors: tuple[str, ...]
    rate_bps: float | None

    def options(self) -> dict[str, int | float | None]:
        """Return the plan's keys that the topology decides."""
        return {"hosts": len(self.hosts), "tors": len(self.tors), "rate_bps": self.rate_bps}


def read(spec: str) -> TopoPlan:
    """Return the plan of a topology. spec: `FILE.py:CLASS`.

    The file is run, as `mn --custom` does. Raises ScenarioError naming the file and the reason.
    """
    return plan_of(_built(spec), spec)


def plan_of(topo: Topo, name: str) -> TopoPlan:
    """Return the plan of a built topology. Raises ScenarioError for features that a fabric does not have."""
    hosts, tors = tuple(topo.hosts()), tuple(topo.switches())
    for node in (*hosts, *tors):
        _refuse(f"{name}: {node}", topo.nodeInfo(node), allowed=frozenset())
    links = topo.links(withInfo=True)
    for near, far, options in links:
        if topo.isSwitch(near) == topo.isSwitch(far):
            kind = "switches, but a fabric has no spines" if topo.isSwitch(near) else "hosts"
            raise ScenarioError(f"{name}: link {near}-{far} joins two {kind}; link hosts to switches only")
        _refuse(f"{name}: link {near}-{far}", options, allowed=frozenset({"bw"}))
    counts = Counter(frozenset((near, far)) for near, far, _ in links)
    for host in hosts:
        for tor in tors:
            count = counts[frozenset((host, tor))]
            if count != 1:
                raise ScenarioError(
                    f"{name}: {host} has {count} links to {tor}; a fabric has one from every host to every "
                    f"switch"
                )
    rates = {options.get("bw") for _, _, options in links}
    if len(rates) > 1:
        raise ScenarioError(f"{name}: bw differs between links; a fabric has one rate for all uplinks")
    rate = rates.pop() if rates else None
    return TopoPlan(hosts, tors, None if rate is None else float(rate) * 1e6)


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
    module = importlib.util.module_from_spec(loader)
    try:
        loader.loader.exec_module(module)
        kind = getattr(module, name, None)
        topo = kind() if inspect.isclass(kind) and issubclass(kind, Topo) else None
    except OSError as error:
        raise ScenarioError(f"topo: {file} cannot be read ({error.strerror})") from error
    except Exception as error:  # a user's file may raise anything
        reason = " ".join(str(error).split())
        raise ScenarioError(f"topo: {file} fails: {type(error).__name__}: {reason}") from error
    if topo is None:
        raise ScenarioError(f"topo: {file} has no class {name} that is a mininet.topo.Topo")
    return topo
