"""Simulate a training job on a whole fleet for weeks, with every fault and every iteration.

For: where a fleet's time goes under a scheme and a checkpoint interval. SimPy drives faults, repairs and
starts; compiled code does what happens between two of them (iterations.py). Not for: detection and failover
of a single fault (failover.py gives gaps_s), nor the parts of an iteration (jobs.py).
Simplifications: an unrepaired fault does not change when its component fails again; a gap slows no save; all
attachments of a replacement work.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import simpy

from control.fabric import FaultKind
from twin.containers.compiled import kernel
from twin.fabric.fleet_model import Bill, Cause, FleetOutcome, FleetSpec
from twin.fabric.iterations import BOOK, DOWN, KEPT, advance, begin, keep, lose, meet
from twin.fabric.model import Flags, Floats, Whole
from twin.fabric.transports import Rdma


def simulate(spec: FleetSpec, seed: np.random.SeedSequence) -> FleetOutcome:
    """Run the job from a healthy start for spec.duration_s. The same seed gives the same result to the
    bit."""
    fleet = _Fleet(spec, seed)
    fleet.env.run(until=spec.duration_s)
    return fleet.outcome()


class _Fleet:
    """The state of one run.

    up_again_s: float64[H, U], time from which on each uplink works, past or future, s. back_s:
    float64[hosts], the same for each host, s.
    """

    def __init__(self, spec: FleetSpec, seed: np.random.SeedSequence) -> None:
        self.spec = spec
        self.env = simpy.Environment()
        paces, meetings, *causes = seed.spawn(2 + len(spec.causes))
        self._paces = np.random.default_rng(paces)
        self._meetings = np.random.default_rng(meetings)
        self.up_again_s = np.zeros(spec.topology.tor_of.shape, order="F")  # minima over uplinks are long rows
        self.back_s = np.zeros(spec.hosts)
        self._troubled: set[int] = set()
        self._spares = spec.spares
        self._returns: list[float] = []
        self._books = np.zeros(1, BOOK)
        self._sigma = float(np.sqrt(np.log1p(spec.jitter_cv**2)))
        self._taken_s = np.empty(1 << 12)
        self._used = 0
        self._down_since_s = self._down_s = self._lost_s = 0.0
        self._faults: list[tuple[float, int, float]] = []
        self._base_s = self._iteration_s()
        begin(self._books, 0.0, self._base_s, self._sigma, self._paces)
        for index, cause in enumerate(spec.causes):
            if cause.per_s > 0:
                self.env.process(self._break(index, cause, np.random.default_rng(causes[index])))

    def outcome(self) -> FleetOutcome:
        """Return the outcome as it stands at the end."""
        spec, end_s = self.spec, self.spec.duration_s
        self._catch_up(end_s)
        book = self._books[0]
        down = book["activity"] == DOWN
        open_s = 0.0 if down else end_s - float(book["began_s"])
        keep(self._books)
        iterations, ideal_s, jitter_s, degraded_s, stalled_s = book["amounts"][KEPT].tolist()
        bill = Bill(
            ideal_s,
            jitter_s,
            degraded_s,
            stalled_s,
            saving_s=float(book["saving_s"]),
            lost_s=self._lost_s,
            down_s=self._down_s + (end_s - self._down_since_s if down else 0.0),
            open_s=open_s,
        )
        at_s, cause, stall_s = zip(*self._faults, strict=True) if self._faults else ((), (), ())
        return FleetOutcome(
            gpus=spec.gpus,
            duration_s=end_s,
            bill=bill,
            iterations=int(iterations),
            iteration_s=self._taken_s[: self._used].copy(),
            fault_at_s=np.array(at_s, np.float64),
            fault_cause=np.array(cause, np.int64),
            fault_stall_s=np.array(stall_s, np.float64),
        )

    # --- what breaks ---------------------------------------------------------------------------------------

    def _break(self, index: int, cause: Cause, rng: np.random.Generator) -> Generator[simpy.Event, Any, None]:
        """Make all faults of one cause. Those of many independent components are one Poisson process."""
        components = self._components(cause.kind)
        while True:
            yield self.env.timeout(rng.exponential(1 / (cause.per_s * len(components))))
            component = int(components[rng.integers(len(components))])
            self._fault(index, cause, component, float(cause.repair.draw(1, rng)[0]))

    def _components(self, kind: FaultKind | None) -> Whole:
        """Return int64[n], the numbers of all components of a kind. Uplinks are numbered host by host; an
        adapter has the number of its first uplink."""
        topology = self.spec.topology
        if kind is None:
            return np.arange(self.spec.hosts)
        if kind is FaultKind.TOR:
            return np.unique(topology.tor_of)
        uplinks = np.arange(topology.tor_of.size).reshape(topology.tor_of.shape)
        if kind is FaultKind.NIC:
            earlier = topology.nic_of[:, :, None] == topology.nic_of[:, None, :]
            first = np.argmax(earlier, axis=2) == np.arange(topology.uplinks)
            return np.asarray(uplinks[first])
        return np.asarray(uplinks.ravel())

    def _fault(self, index: int, cause: Cause, component: int, repair_s: float) -> None:
        now_s = self.env.now
        self._catch_up(now_s)
        if cause.kind is None:
            stall_s = np.inf
            self.back_s[component] = max(self.back_s[component], now_s + repair_s)
        else:
            rows, hit = self._hit(cause.kind, component)
            gap_s = self._cut(rows, hit, now_s + repair_s)
            transport = self.spec.transport
            if isinstance(transport, Rdma) and not _working(self.up_again_s, rows, now_s).all():
                transport = replace(transport, library=None)  # no port is left to move to
            stall_s = meet(self._books, now_s, gap_s, self.spec.busy, transport)
            self.env.process(self._repair(repair_s))
        if self._books[0]["activity"] == DOWN:
            stall_s = np.nan
        self._faults.append((now_s, index, stall_s))
        if np.isinf(stall_s):
            self._die()
        self._base_s = self._iteration_s()

    def _hit(self, kind: FaultKind, component: int) -> tuple[Whole, Flags]:
        """Return the attachments (int64[r]) that a fault of the component hits and their lost uplinks
        (bool[r, U])."""
        topology = self.spec.topology
        if kind is FaultKind.TOR:
            at_tor = topology.tor_of == component
            rows = np.flatnonzero(at_tor.any(axis=1))
            return rows, at_tor[rows]
        row, uplink = divmod(component, topology.uplinks)
        if kind is FaultKind.NIC:
            hit = topology.nic_of[row] == topology.nic_of[row, uplink]
        else:
            hit = np.arange(topology.uplinks) == uplink
        return np.array([row]), hit[None]

    def _cut(self, rows: Whole, hit: Flags, until_s: float) -> Floats:
        """Take uplinks away until until_s. Returns float64[2]: the times for which OUT and IN are lost, s."""
        spec = self.spec
        self._troubled.update(rows.tolist())
        return np.array(
            _cut_uplinks(
                self.up_again_s,
                rows,
                hit,
                self.env.now,
                until_s,
                spec.gaps_s,
                spec.flows,
                self._meetings,
            )
        )

    def _repair(self, after_s: float) -> Generator[simpy.Event, Any, None]:
        """Let the fleet run at the pace of its working uplinks once the repair is over."""
        yield self.env.timeout(after_s)
        self._catch_up(self.env.now)
        self._base_s = self._iteration_s()

    # --- death and start -----------------------------------------------------------------------------------

    def _die(self) -> None:
        book, now_s = self._books[0], self.env.now
        self._lost_s += now_s - float(book["saved_s"])
        lose(self._books)
        book["activity"], book["since_save_s"] = DOWN, 0.0
        self._down_since_s = now_s
        self.env.process(self._start())

    def _start(self) -> Generator[simpy.Event, Any, None]:
        yield self.env.timeout(self.spec.checkpointing.detect_s)
        while True:
            dead = self._replace()
            if len(dead):
                works_s = np.minimum.reduce([self._works_s()[dead].min(), *self._returns])
                yield self.env.timeout(max(float(works_s) - self.env.now, 0.0))
                continue
            yield self.env.timeout(self.spec.checkpointing.init_s)
            if not np.any(self._works_s() > self.env.now):
                break
        now_s = self.env.now
        self._down_s += now_s - self._down_since_s
        self._books[0]["saved_s"] = now_s
        self._base_s = self._iteration_s()
        begin(self._books, now_s, self._base_s, self._sigma, self._paces)

    def _replace(self) -> Whole:
        """Put spares in place of hosts that do not work, and return the hosts for which there is no spare."""
        now_s = self.env.now
        self._welcome()
        works_s = self._works_s()
        dead = np.flatnonzero(works_s > now_s)
        for host in dead[: self._spares].tolist():
            self._returns.append(float(works_s[host]))
            self.back_s[host] = now_s
            self.up_again_s[host * self.spec.rows_per_host : (host + 1) * self.spec.rows_per_host] = now_s
        gone = min(self._spares, len(dead))
        self._spares -= gone
        return dead[gone:]

    def _welcome(self) -> None:
        """Count the hosts repaired by now as spares."""
        self._spares += sum(at_s <= self.env.now for at_s in self._returns)
        self._returns = [at_s for at_s in self._returns if at_s > self.env.now]

    def _works_s(self) -> Floats:
        """Return float64[hosts]: when each host is up with a working uplink at every attachment, s."""
        return _works(self.up_again_s, self.back_s, self.spec.rows_per_host)

    # --- iterations ----------------------------------------------------------------------------------------

    def _iteration_s(self) -> float:
        """Return the length of an iteration with the uplinks that work now, s."""
        rows = np.fromiter(self._troubled, np.int64, len(self._troubled))
        live = _working(self.up_again_s, rows, self.env.now)
        self._troubled.difference_update(rows[live == self.spec.topology.uplinks].tolist())
        fewest = int(live.min(initial=self.spec.topology.uplinks))
        return float(self.spec.iteration_s[max(fewest, 1)])

    def _catch_up(self, now_s: float) -> None:
        """Update the books to now_s. A change at that time counts from the next iteration on."""
        plan = self.spec.checkpointing
        while True:
            self._used = advance(
                self._books,
                now_s,
                self._base_s,
                float(self.spec.iteration_s[-1]),
                self._sigma,
                plan.interval_s,
                plan.save_s,
                self._paces,
                self._taken_s,
                self._used,
            )
            if self._used < len(self._taken_s):
                return
            self._taken_s = np.concatenate([self._taken_s, np.empty(len(self._taken_s))])


@kernel
def _cut_uplinks(
    up_again_s: Floats,
    rows: Whole,
    hit: Flags,
    now_s: float,
    until_s: float,
    gaps_s: Floats,
    flows: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Take the uplinks `hit` (bool[r, U]) of the attachments `rows` (int64[r]) away until until_s.

    up_again_s: float64[H, U], as in _Fleet. Returns the times for which traffic OUT and IN is lost at the
    attachment that loses most, s. It is a gap drawn from gaps_s (float64[n, 2]) if one of `flows` connections
    was on a lost uplink. Without a working uplink it is the time until the first repair.
    """
    out_s, in_s = 0.0, 0.0
    for place in range(len(rows)):
        row = rows[place]
        lived, lost, first_s = 0, 0, np.inf
        for uplink in range(up_again_s.shape[1]):
            works = up_again_s[row, uplink] <= now_s
            lived += works
            lost += works and hit[place, uplink]
            if hit[place, uplink]:
                up_again_s[row, uplink] = max(up_again_s[row, uplink], until_s)
            first_s = min(first_s, up_again_s[row, uplink])
        if lost == 0:
            continue
        if first_s > now_s:
            out_s, in_s = max(out_s, first_s - now_s), max(in_s, first_s - now_s)
            continue
        missed = (1.0 - lost / lived) ** flows
        drawn = rng.integers(0, len(gaps_s))
        if rng.random() >= missed:
            out_s = max(out_s, min(gaps_s[drawn, 0], until_s - now_s))
        if rng.random() >= missed:
            in_s = max(in_s, min(gaps_s[drawn, 1], until_s - now_s))
    return out_s, in_s


@kernel
def _works(up_again_s: Floats, back_s: Floats, rows_per_host: int) -> Floats:
    works_s = back_s.copy()
    for row in range(len(up_again_s)):
        first_s = np.inf
        for uplink in range(up_again_s.shape[1]):
            first_s = min(first_s, up_again_s[row, uplink])
        works_s[row // rows_per_host] = max(works_s[row // rows_per_host], first_s)
    return works_s


@kernel
def _working(up_again_s: Floats, rows: Whole, now_s: float) -> Whole:
    """Return int64[r]: the number of working uplinks at each of `rows`."""
    counts = np.zeros(len(rows), np.int64)
    for place in range(len(rows)):
        for uplink in range(up_again_s.shape[1]):
            counts[place] += up_again_s[rows[place], uplink] <= now_s
    return counts
