"""Faults on a real fabric, one after another, each measured from the break until everything is as before.

For: filling the store with a setting's faults, or with a time without any. Not for: which settings (plan.py),
what the figures mean (figures.py). The fabric is this process's own and is gone when it ends.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lab.fabric.real.chain import chain
from lab.fabric.real.plan import Planned
from lab.fabric.real.settings import Road, Setting, What
from lab.fabric.real.store import Measured, Store, Watched
from testbed.fabric import faults, frr, leftovers, probe, sentinel, up
from testbed.fabric.agent_process import Agents
from testbed.fabric.fast_path import processes
from testbed.fabric.links import run_in
from testbed.fabric.model import Daemon, Fabric
from testbed.fabric.reach import Reach
from testbed.fabric.witness import Seen, Witness, witness
from twinbed import BackendError

_STEADY_S = 0.8
"""Everything is back and stays so for as long before the next fault, or that would be a second one: after a
lost carrier BGP comes back before BFD does, and goes once more when BFD says so; a fast path believes in an
uplink again after half a second; and an agent's report may be 0.2 s old."""
_AFTER_S = 0.1
"""After the last route has changed, before the repair: what is lost then belongs to the fault."""
_NEVER_S = 15.0
_POLL_S = 0.01
_COALESCE_MS = 50
"""How long bgpd waits before it sends its routes to a neighbour that has come back (by itself: 1 s). It
shortens the time between two faults and nothing that is measured in one."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """A fabric with everything that measures on it. flows: files of those from host 0 to 1 and back."""

    fabric: Fabric
    flows: tuple[Path, ...]
    stalls: Path
    witness: Witness
    journals: tuple[Path, ...]
    reach: Reach
    agents: Agents

    def rule_changes(self) -> int:
        """How many tunnel rules the hosts' agents have changed so far."""
        reports = [self.agents.report(host.index) for host in self.fabric.hosts]
        return sum(int(each["rule_changes"]) for each in reports if each is not None)


def measure(planned: Planned, store: Store, name: str, until_s: float, say: Progress) -> int:
    """Adds faults until the store has those planned or it is until_s (time.monotonic). How many it has then.
    Raises BackendError when the fabric does not come back after a fault."""
    setting, have = planned.setting, len(store.faults(planned.setting))
    if have >= planned.faults or time.monotonic() >= until_s:
        return have
    with bench(setting, name, hurried=planned.hurried) as found:
        while have < planned.faults and time.monotonic() < until_s:
            row = _fault(found, setting, have)
            store.add(setting, row)
            have += 1
            say(f"{setting.key} {have}: out {row.out_s * 1e3:.0f} ms, in {row.in_s * 1e3:.0f} ms")
    return have


def watch(setting: Setting, lasts_s: float, store: Store, name: str) -> Watched:
    """Does nothing for so long, and counts what went down all the same."""
    with bench(setting, name, probing=False) as found:
        before = _downs(found.fabric)
        began_ns = time.monotonic_ns()
        time.sleep(lasts_s)
        stalls = [each for each in sentinel.read(found.stalls) if each.begin_ns >= began_ns]
        row = Watched(
            _now(),
            (time.monotonic_ns() - began_ns) / 1e9,
            sum(len(host.uplinks) for host in found.fabric.hosts),
            _downs(found.fabric) - before,
            sum(_turned_away(path) for path in found.journals),
            sentinel.lengths_s(stalls),
        )
    store.add(setting, row)
    return row


@contextmanager
def bench(setting: Setting, name: str, *, probing: bool = True, hurried: bool = True) -> Iterator[Bench]:
    """The setting's fabric, up and watched, while the block runs."""
    with ExitStack() as stack:
        fabric = up.up(setting.plan(name))
        stack.callback(leftovers.remove, name)
        for router in fabric.routers if hurried else ():
            _hasten(router.namespace, router.asn)
        agents = stack.enter_context(Agents(fabric))
        running = processes.start(fabric) if setting.road is Road.FAST else ()
        stack.callback(processes.stop, running)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbed-")))
        stalls = folder / "stalls.txt"
        stack.enter_context(sentinel.sentinel(stalls))
        seen = stack.enter_context(witness(fabric))
        ends = [host.endpoints[0] for host in fabric.hosts]
        flows = [probe.Flows(ends[0], ends[1]), probe.Flows(ends[1], ends[0])]
        files = stack.enter_context(probe.probing(flows if probing else [], folder))
        # The first one takes long: it loads what the others use.
        faults.clear(fabric, setting.fault(0, 0))
        reach = Reach(fabric)
        stack.callback(reach.close)
        if setting.busy:
            stack.enter_context(_busy())
        made = Bench(fabric, files, stalls, seen, tuple(each.journal for each in running), reach, agents)
        # Rules that do not change mean nothing where there are none.
        _until(lambda: made.rule_changes() > 0, _NEVER_S, "no tunnel rules are made")
        yield made


def _fault(found: Bench, setting: Setting, number: int) -> Measured:
    """Breaks one link and mends it; the four of the fabric take turns."""
    fabric = found.fabric
    host, uplink = _place(setting, number)
    fault = setting.fault(host, uplink)
    detection_s = setting.timers.detection_s
    # Where in BFD's interval it falls is left to chance.
    time.sleep(random.uniform(0.0, setting.timers.interval_s))
    before = found.witness.take()
    rules = found.rule_changes()
    marks = [path.stat().st_size for path in found.journals]
    injected = faults.inject(fabric, fault)
    _until(lambda: found.reach.without(host, uplink), detection_s + 2.0, "routes still use the dead link")
    time.sleep(_AFTER_S)
    cleared_ns = faults.clear(fabric, fault)
    _until(lambda: found.reach.whole(), _NEVER_S, "routes do not come back")
    back_s = (time.monotonic_ns() - cleared_ns) / 1e9
    _await_steady(found, host)
    seen: list[Seen] = [*before, *found.witness.take()]
    decisions = [
        json.loads(line)
        for path, mark in zip(found.journals, marks, strict=True)
        for line in path.read_bytes()[mark:].splitlines()
        if line.endswith(b"}")
    ]
    end_ns = time.monotonic_ns()
    stalls = [
        (min(each.end_ns, end_ns) - max(each.begin_ns, injected.at_ns)) / 1e9
        for each in sentinel.read(found.stalls)
        if each.end_ns > injected.at_ns and each.begin_ns < injected.at_ns + round(detection_s * 2e9)
    ]
    sides = [_worst(path, injected.at_ns) for path in (found.flows if host == 0 else found.flows[::-1])]
    return Measured(
        date=_now(),
        host=host,
        uplink=uplink,
        inject_s=(injected.at_ns - injected.asked_ns) / 1e9,
        out_s=sides[0].own_s,
        in_s=sides[1].own_s,
        out_flows=sides[0].flows,
        in_flows=sides[1].flows,
        out_later_s=sides[0].later_s,
        in_later_s=sides[1].later_s,
        stall_s=max(stalls, default=0.0),
        back_s=back_s,
        chain=chain(fabric, fault, setting, injected, seen, decisions),
        rules=found.rule_changes() - rules,
    )


def _place(setting: Setting, number: int) -> tuple[int, int]:
    """Host and uplink, in turn. Carriers only where a veth pair's ends have different indices in their
    namespaces: one with its peer's index is taken for no veth and tells of it up to a second late
    (net/core/link_watch.c, linkwatch_urgent_event), as no adapter does."""
    host = number % 2
    return host, (1 - host if setting.what is What.CARRIER else number // 2 % 2)


@dataclass(frozen=True, slots=True)
class _Side:
    own_s: float
    flows: int
    later_s: float


def _worst(path: Path, at_ns: int) -> _Side:
    """Of the flows of one direction: the longest gap that the fault began, and that began later."""
    gaps = [each for each in probe.gaps(path) if each.lost and each.end_ns > at_ns]
    own = [each for each in gaps if each.begin_ns <= at_ns + 20_000_000]
    later = [each.length_s for each in gaps if each not in own]
    worst_s = max((each.length_s for each in own), default=0.0)
    return _Side(worst_s, len({each.flow for each in own}), max(later, default=0.0))


def _until(true: Callable[[], bool], within_s: float, otherwise: str) -> None:
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise BackendError(f"campaign: {otherwise} for {within_s:g} s; is the machine busy?")
        time.sleep(_POLL_S)


def _await_steady(found: Bench, host: int) -> None:
    """Returns when all has been back for long enough; `host` is the one whose link was dead."""
    steady_s = 0.0
    while steady_s < _STEADY_S:
        _until(lambda: _downs_now(found.fabric, host) == 0, _NEVER_S, "BFD does not come back")
        _until(found.reach.whole, _NEVER_S, "routes do not come back")
        began_s = time.monotonic()
        while found.reach.whole() and steady_s < _STEADY_S:
            time.sleep(_POLL_S * 5)
            steady_s = time.monotonic() - began_s


def _downs_now(fabric: Fabric, host: int) -> int:
    """How many sessions of a host are not up."""
    peers = json.loads(frr.show(fabric.hosts[host].namespace, "show bfd peers json", Daemon.BFDD))
    return sum(each["status"] != "up" for each in peers)


def _downs(fabric: Fabric) -> int:
    """How often sessions of all hosts have gone down so far."""
    return sum(
        each["session-down"]
        for host in fabric.hosts
        for each in json.loads(frr.show(host.namespace, "show bfd peers counters json", Daemon.BFDD))
    )


def _hasten(namespace: str, asn: int) -> None:
    done = run_in(
        namespace,
        (
            *("vtysh", "-N", namespace, "-d", str(Daemon.BGPD), "-c", "configure terminal"),
            *("-c", f"router bgp {asn}", "-c", f"coalesce-time {_COALESCE_MS}"),
        ),
    )
    if done.returncode:
        raise BackendError(f"bgpd in {namespace}: {done.stdout.strip()}{done.stderr.strip()}; does it run?")


@contextmanager
def _busy() -> Iterator[None]:
    """Every CPU has something to do."""
    # They end by themselves when this process is killed.
    forever = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", forever]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait()


def _turned_away(path: Path) -> int:
    """How often a fast path gave an uplink up: of its reports, those that are not repetitions."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    why = [row["why"] for row in rows if row["what"] == "tell"]
    changes = zip(["", *why], why, strict=False)
    return sum(one != before and one in ("silent", "told_down") for before, one in changes)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
