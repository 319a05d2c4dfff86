"""CPU time of the controller's own work without sockets: its books, its ledgers and Escra's decisions.

It also measures a whole controller as a process (whole_controller.py).

A period: every agent sends one record per container in signed datagrams. They are checked, decided on, and
the limits that follow are put into orders, which all agents confirm. 5 % of the containers are throttled, and
20 % leave runtime unused. The same datagrams, each decided on alone, are the baseline. A join: one agent says
which containers it has, and gets their names and limits; the baseline is a tenth of them, times ten.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Iterator
from statistics import median

import numpy as np

from benchmarks import whole_controller
from benchmarks.figure import figure
from control.allocator import make
from control.allocator.model import Application
from testbed.containers.ports import Records
from testbed.containers.remote.books import ControllerBooks
from testbed.containers.remote.datagrams import KEY_BYTES, Gate, Sealer
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.messages_pb2 import Hello, Joined, Report
from testbed.containers.remote.refusals import Refusals
from twinbed import BackendError

CORES_PER_CONTAINER, HOST_CORES, PERIOD_S = 1.5, 64.0, 0.1
AGENTS, JOINING, REPEATS = 1_000, 10_000, 5
KEY = bytes(KEY_BYTES)


class Fleet:
    """The books of one application on agents that carry everything out at once."""

    def __init__(self, agents: int, each: int) -> None:
        log = logging.getLogger("benchmarks.controller")
        log.disabled = logging.getLogger("twinbed.controller").disabled = True
        count = agents * each
        application = Application("shop", CORES_PER_CONTAINER * count, count << 28)
        placed = tuple(
            Placed(f"c{container}", f"a{agent}", 0, attach={"": "/c"})
            for agent in range(agents)
            for container in range(each)
        )
        refusals = Refusals(log)
        self.books = ControllerBooks(Deployment((application,), placed), make("escra", {}), refusals, 0.0)
        self.gate = Gate(refusals)
        self.agents, self.each = agents, each
        self._sealers = [Sealer(agent + 1, KEY) for agent in range(agents)]
        self._rng = np.random.default_rng(30)
        self._answer, self._applied = Report(), Counter[str]()

    def join(self) -> None:
        """Let every agent register and report its containers."""
        for agent in range(self.agents):
            self.books.register(Hello(name=f"a{agent}", instance=1, host_cores=HOST_CORES), agent + 1, 0.0)
            self.gate.open(agent + 1, KEY)
            joined = Joined(complete=True)
            for container in range(self.each):
                joined.containers.add(name=f"c{container}", incarnation=7)
            self.books.reported(f"a{agent}", Report(session=agent + 1, joined=joined), 0.0)
        self.obey()

    def obey(self) -> None:
        """Take all orders and confirm them, until nothing more comes."""
        answer = self._answer
        while names := self.books.ready():
            for name, order in zip(names, self.books.take_orders(names), strict=True):
                if order is not None:
                    self._applied[name] += 1
                    answer.session, answer.applied = self.books.agents[name].session, self._applied[name]
                    self.books.reported(name, answer, 0.0)

    def datagrams(self, number: int) -> list[tuple[str, bytes]]:
        """Return all agents' datagrams of a period, each with its sender."""
        sealed = []
        for agent, sealer in enumerate(self._sealers):
            ids = self.books.agents[f"a{agent}"].ids
            kind = self._rng.random(len(ids))
            quota = self.books.cpu.wanted(ids)
            held = kind < 0.05
            left = np.where(held, 0.0, np.minimum(np.where(kind < 0.25, 0.4, 0.05), quota))
            records = Records(
                ids=ids,
                end_ns=np.full(len(ids), number),
                quota_cores=quota,
                unused_cores=left,
                throttled=held,
                usage_cores=quota - left,
                memory_bytes=np.full(len(ids), 1 << 20),
                throttled_s=np.zeros(len(ids)),
                idle=np.zeros(len(ids), np.bool_),
            )
            sealed += [(f"a{agent}", datagram) for datagram in sealer.seal(records, 1)]
        return sealed

    def period(self, number: int, *, alone: bool) -> tuple[float, float]:
        """Serve a period; return seconds of CPU for checking datagrams, and for everything else."""
        sealed = self.datagrams(number)
        began = time.process_time()
        batches = [(name, batch) for name, data in sealed if (batch := self.gate.receive(data, name))]
        checked = time.process_time()
        for part in [[batch] for batch in batches] if alone else [batches]:
            self.books.telemetry(part, number * PERIOD_S)
            self.obey()
        return checked - began, time.process_time() - checked


def figures() -> Iterator[dict[str, object]]:
    """Yield the figures of periods at two sizes, then that of a join."""
    for each in (10, 100):
        yield _period(each)
    seconds = [_join_s(JOINING) for _ in range(REPEATS)]
    tenth = [_join_s(JOINING // 10) for _ in range(REPEATS)]
    yield figure(
        f"controller_join_{JOINING}_containers_on_one_agent",
        median(seconds) * 1e3,
        "ms of CPU",
        baseline=f"ten joins of {JOINING // 10} containers",
        baseline_value=median(tenth) * 1e4,
        ratio=10 * median(tenth) / median(seconds),
        target="ratio ≥ 0.5: no more than linear",
    )
    for agents in (100, 300, AGENTS):
        try:
            yield _whole(agents, 100)
        except BackendError as error:
            print(f"benchmarks: {agents} agents: {error}", file=sys.stderr)


def _whole(agents: int, each: int) -> dict[str, object]:
    fleet = Fleet(agents, each)
    fleet.join()
    bare_s = median(sum(fleet.period(number, alone=False)) for number in range(1, REPEATS + 1))
    per_s = whole_controller.measure(agents, each)
    return figure(
        f"whole_controller_{agents * each}_containers_on_{agents}_agents",
        per_s["cpu_s"],
        "cores",
        baseline="signatures, books and decisions alone, without sockets",
        baseline_value=bare_s / PERIOD_S,
        ratio=bare_s / PERIOD_S / per_s["cpu_s"],
        target="≤ 0.5 cores at 100000 containers, all of their records counted",
        records_of_all=round(per_s["reports"] * PERIOD_S / (agents * each), 3),
        datagrams_received=round(per_s["received"] / max(per_s["sent"], 1.0), 3),
        orders_per_agent_and_s=round(per_s["orders"] / agents, 2),
        lost_calls=per_s["lost_calls"],
    )


def _period(each: int) -> dict[str, object]:
    fleet = Fleet(AGENTS, each)
    fleet.join()
    together = [fleet.period(number, alone=False) for number in range(1, REPEATS + 1)]
    _, alone = fleet.period(REPEATS + 1, alone=True)
    check, decide = (median(part) for part in zip(*together, strict=True))
    return figure(
        f"controller_period_{AGENTS * each}_containers_on_{AGENTS}_agents",
        decide / PERIOD_S,
        "cores",
        baseline="the same datagrams, each decided on alone",
        baseline_value=alone / PERIOD_S,
        ratio=alone / decide,
        target="≤ 0.5 cores at 100000 containers",
        check_signatures_cores=round(check / PERIOD_S, 3),
    )


def _join_s(containers: int) -> float:
    fleet = Fleet(1, containers)
    began = time.process_time()
    fleet.join()
    return time.process_time() - began
