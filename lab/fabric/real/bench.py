"""Sets up the fabric of a setting together with everything that measures on it.

For: campaign.py, which breaks it. Not for: the faults and their times. The fabric belongs to this process and
is removed when the block ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.fabric.real.settings import GROUPS_KEPT_S, Road, Setting
from testbed.fabric import faults, frr, leftovers, probe, sentinel, up
from testbed.fabric.agent_process import Agents
from testbed.fabric.bfd_plane import processes as planes
from testbed.fabric.fast_path import processes
from testbed.fabric.links import run_in
from testbed.fabric.model import Daemon, Fabric
from testbed.fabric.reach import Reach
from testbed.fabric.witness import Witness, witness
from twinbed import BackendError

NEVER_S = 60.0
"""Longest time to wait for an event, s. Later events will not come. On a busy machine, bgpd with 100,000
routes needs more than 15 s to have them again."""

POLL_S = 0.02

_COALESCE_MS = 50
"""Time that bgpd waits before it sends its routes to a returned neighbour, ms (its own default is 1 s). A
short time shortens the time between two faults, but none of the measured times in a fault."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A running fabric with its measurements.

    probes: flows from host 0 to host 1 and back.
    stalls: the sentinel's file.
    counted: downs that `new_downs` has returned so far.
    """

    fabric: Fabric
    probes: probe.Probing
    stalls: Path
    witness: Witness
    journals: tuple[Path, ...]
    reach: Reach
    agents: Agents
    counted: dict[tuple[int, str], int] = field(default_factory=dict)

    def rule_changes(self) -> int:
        """Return how many tunnel rules the hosts' agents have changed so far."""
        reports = [self.agents.report(host.index) for host in self.fabric.hosts]
        return sum(int(report["rule_changes"]) for report in reports if report is not None)

    def new_downs(self) -> dict[tuple[int, str], int]:
        """Return how often each BFD session of the hosts went down since the last call, as bfdd counts
        it, by host and address of its ToR."""
        # Asked for counters, bfdd 8.4 drops its data plane.
        now = (
            self._journals()
            if self.fabric.plan.bfd_plane
            else {
                (host.index, peer["peer"]): peer["session-down"]
                for host in self.fabric.hosts
                for peer in json.loads(frr.show(host.namespace, "show bfd peers counters json", Daemon.BFDD))
            }
        )
        new = {session: count - self.counted.get(session, 0) for session, count in now.items()}
        self.counted.update(now)
        return new

    def _journals(self) -> dict[tuple[int, str], int]:
        """Return how often each session of the hosts went down, as their data planes wrote."""
        return {
            (host.index, uplink.gateway): sum(
                down.peer == uplink.gateway for down in planes.downs(planes.journal_of(self.fabric, host))
            )
            for host in self.fabric.hosts
            for uplink in host.uplinks
        }

    def down_now(self, host: int) -> int:
        """Return how many sessions of a host are not up."""
        shown = frr.show(self.fabric.hosts[host].namespace, "show bfd peers json", Daemon.BFDD)
        return sum(peer["status"] != "up" for peer in json.loads(shown))


@contextmanager
def bench(
    setting: Setting, name: str, *, probing: bool = True, hurried: bool = True, stalls: Path | None = None
) -> Iterator[Bench]:
    """Yield the setting's fabric, up and watched, with thinned flows.

    stalls: the file of a sentinel that runs already, next to the load of a busy setting; None for its own.
    """
    with ExitStack() as stack:
        fabric = up.up(setting.plan(name))
        stack.callback(leftovers.remove, name)
        for router in fabric.routers if hurried else ():
            configure(
                router.namespace, Daemon.BGPD, f"router bgp {router.asn}", f"coalesce-time {_COALESCE_MS}"
            )
        for host in fabric.hosts if setting.strands_groups else ():
            configure(host.namespace, Daemon.ZEBRA, f"zebra nexthop-group keep {GROUPS_KEPT_S}")
        agents = stack.enter_context(Agents(fabric))
        running = processes.start(fabric) if setting.road in (Road.FAST, Road.PLANE) else ()
        stack.callback(processes.stop, running)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinbed-")))
        own = stalls is None
        stalls = stalls or folder / "stalls.txt"
        if own:
            stack.enter_context(sentinel.sentinel(stalls))
        seen = stack.enter_context(witness(fabric))
        ends = [host.endpoints[0] for host in fabric.hosts]
        flows = [probe.Flows(ends[0], ends[1]), probe.Flows(ends[1], ends[0])]
        probes = stack.enter_context(probe.probing(flows if probing else [], folder))
        # The first agent takes long, because it loads modules that the others use.
        faults.clear(fabric, setting.fault(0, 0))
        reach = Reach(fabric)
        stack.callback(reach.close)
        if setting.busy and own:
            stack.enter_context(load())
        made = Bench(fabric, probes, stalls, seen, tuple(path.journal for path in running), reach, agents)
        # Counting changed rules makes sense only once there are rules.
        until(lambda: made.rule_changes() > 0, NEVER_S, "no tunnel rules are made")
        made.new_downs()
        probes.thin()
        yield made


def until(true: Callable[[], bool], within_s: float, otherwise: str) -> None:
    """Wait until a condition is true. Raises BackendError if it does not become true in time."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise BackendError(f"campaign: {otherwise} for {within_s:g} s; is the machine busy?")
        time.sleep(POLL_S)


def configure(namespace: str, daemon: Daemon, *commands: str) -> None:
    """Give a running daemon commands of its configuration. Raises BackendError if it refuses one."""
    words = [part for command in ("configure terminal", *commands) for part in ("-c", command)]
    done = run_in(namespace, ("vtysh", "-N", namespace, "-d", str(daemon), *words))
    if done.returncode:
        said = f"{done.stdout.strip()}{done.stderr.strip()}"
        raise BackendError(f"{daemon} in {namespace}: {said}; does it run?")


@contextmanager
def load() -> Iterator[None]:
    """Keep every CPU busy while the `with` block runs."""
    # These processes end by themselves when this process is killed.
    forever = f"import os\nwhile os.getppid() == {os.getpid()}: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", forever]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
