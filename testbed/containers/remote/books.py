"""The controller without its sockets: agents, containers, and the allocator between them.

For: turning each report of an agent into orders to agents. Not for: transport and clocks (controller.py),
limits in transit (ledger.py), nor checking joins (joining.py). There is one method per event. `ready` then
names the agents that must receive an order, and `take_order` returns it. Reports are checked here. No report
raises an error. Impossible values are counted as refused. Three rules are our own:

- The allocator starts when all agents of the deployment are connected, or GATHER_S after the first.
- Containers of a lost agent keep their ids. Their limits count until the agent returns and reports others.
- While an application has containers on a lost agent, none of its containers is killed for lack of memory,
  because the lost agent may have free memory. A container that needs more stays held and asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from control.allocator.model import Decision, Ids, Join, OomEvents, PeriodStats, Shrunk
from control.allocator.ports import Allocator
from testbed.containers.cgroup.group import QUOTA_PERIOD_US
from testbed.containers.ports import Records
from testbed.containers.remote.datagrams import MOST_CORES, Batch, unpack
from testbed.containers.remote.deployment import Deployment
from testbed.containers.remote.joining import Newcomer, Newcomers, in_force, quoted
from testbed.containers.remote.latest import Latest, rounds
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES, Ledger
from testbed.containers.remote.members import AgentState, Member, Reclaims, Sent, next_orders
from testbed.containers.remote.messages_pb2 import Hello, Joined, Present, Report
from testbed.containers.remote.refusals import Kind, Refusals, RefusedError
from twinbed import ScenarioError

GATHER_S = 5.0
"""Longest wait for all agents of a deployment, s. Then the connected ones begin."""

AGAIN_S = 5.0
"""Time between two tries of a limit that a host could not lower as far as decided, s."""

_NAMES_LOGGED = 10
_log = logging.getLogger("twinbed.controller")


class ControllerBooks:
    """One deployment under one allocator.

    began_s: time 0 of the allocator, s. All times are seconds of one monotonic clock.
    agents: name → agent. members: id → container. cpu, memory: limits in transit. latest: last reports.
    newcomers: containers that wait to join.

    Counters since the start: reports (accepted records), unlimited (records of containers without the CPU
    limit decided for them, which the policy does not see), stale (records older than the container's last
    one), oom_grants, kills, kills_withheld, limit_changes, agents_lost.
    """

    def __init__(
        self, deployment: Deployment, allocator: Allocator, refusals: Refusals, began_s: float
    ) -> None:
        self.deployment = deployment
        self.allocator = allocator
        self.agents: dict[str, AgentState] = {}
        self.members: dict[int, Member] = {}
        self.cpu = Ledger(
            [application.cpu_limit_cores for application in deployment.applications], LARGE_CORES
        )
        self.memory = Ledger(
            [application.memory_limit_bytes for application in deployment.applications], LARGE_BYTES
        )
        self.latest = Latest()
        self.started = False
        self.reports = self.unlimited = self.stale = self.oom_grants = self.kills = self.kills_withheld = 0
        self.limit_changes = self.agents_lost = 0
        self._refusals, self._began_s, self._again_s, self._at_s = refusals, began_s, began_s, 0.0
        self._first_s: float | None = None
        self._by_number: list[AgentState] = []
        self._spoken_to: set[int] = set()
        self._sent_ns: dict[int, int] = {}
        self._done: list[Sent] = []
        self.newcomers = Newcomers(deployment, refusals)
        self._reclaims = Reclaims()

    # --- agents ----------------------------------------------------------------------------------

    def register(self, hello: Hello, session: int, now_s: float) -> None:
        """Record an agent that has connected. Its containers come with its first `joined`. session: number
        above zero. Raises RefusedError."""
        if hello.name not in self.deployment.agents:
            raise RefusedError(f"agent {quoted(hello.name)} is not in the deployment")
        if not 0 < hello.host_cores <= MOST_CORES:
            raise RefusedError(f"agent {hello.name!r} says it has {hello.host_cores:g} cores")
        state = self.agents.get(hello.name)
        if state is None:
            state = self.agents[hello.name] = AgentState(hello.name, len(self._by_number))
            self._by_number.append(state)
        elif state.live and state.instance != hello.instance:
            raise RefusedError(f"agent {hello.name!r} is connected already, from another process")
        self._part(state, now_s)
        state.begin(hello.instance, hello.host_cores, session)
        self._first_s = now_s if self._first_s is None else self._first_s
        _log.info("agent %s is there, %g cores", hello.name, hello.host_cores)

    def lost(self, agent: str, why: str, now_s: float) -> None:
        """Record that an agent's call ended or that the agent fell silent. Its containers keep their limits
        in these books."""
        state = self.agents[agent]
        self._part(state, now_s)
        if state.members:
            self.agents_lost += 1
            _log.warning(
                "agent %s is lost (%s): its %d containers keep their limits", agent, why, len(state.members)
            )
        else:
            _log.info("agent %s left, it has no containers (%s)", agent, why)

    def tick(self, now_s: float) -> None:
        """Begin if the wait for agents has been long enough. Later, send again the limits that hosts could
        not carry out. Call this method regularly."""
        if now_s - self._again_s >= AGAIN_S:
            self._again_s = now_s
            self.cpu.again()
            self.memory.again()
        if self.newcomers.admitting:
            self._admit()
        if self.started or self.newcomers.admitting or not self.newcomers or self._first_s is None:
            return
        complete = {state.name for state in self.agents.values() if state.live and state.complete}
        absent = sorted(self.deployment.agents - complete)
        if absent and now_s - self._first_s < GATHER_S:
            return
        for agent in absent:
            _log.warning("begins without agent %s: its containers do not count before it is back", agent)
        self._admit()

    def ready(self) -> list[str]:
        """Clear the limits that may be sent now. Returns the live agents that may have an order."""
        self._confirm()
        for ledger in (self.cpu, self.memory):
            cleared = ledger.settle()
            if cleared.size:
                owners = self.latest.owners(cleared)
                self._spoken_to |= owners
                for number in owners & self._sent_ns.keys():
                    outbox = self._by_number[number].outbox
                    outbox.caused_ns = outbox.caused_ns or self._sent_ns[number]
        self._sent_ns.clear()
        spoken_to = [self._by_number[number] for number in self._spoken_to]
        self._spoken_to.clear()
        for state in spoken_to:
            state.due = state.live
        return [state.name for state in spoken_to if state.live]

    def take_order(self, agent: str, session: int) -> bytes | None:
        """Return a session's next order, serialised; None: there is no order now. A returned order counts as
        sent."""
        return self.take_orders([agent])[0] if self.agents[agent].session == session else None

    def take_orders(self, agents: Sequence[str]) -> list[bytes | None]:
        """Return the next order of each agent's present session, as `take_order` does."""
        return next_orders([self.agents[agent] for agent in agents], self.cpu, self.memory)

    # --- reports ---------------------------------------------------------------------------------

    def reported(self, agent: str, report: Report, now_s: float) -> None:
        """Accept any report of an agent over the reliable channel, except its Hello. Raises RefusedError if
        its call must be ended."""
        state = self.agents[agent]
        if not state.live or report.session != state.session:
            self._refusals.add("another session", f"a report of agent {agent}, which has another call")
            return
        done = state.acknowledge(report)
        if done is None:
            raise RefusedError(f"agent {agent} confirms order {report.applied}, which was not sent")
        if state.crowded:
            raise RefusedError(f"agent {agent} does not read its orders")
        self._done += done
        if state.due:
            self._spoken_to.add(state.number)
        kind = report.WhichOneof("what")
        if kind is None:
            return
        self._confirm()
        at_s = self._at_s = now_s - self._began_s
        if kind == "joined":
            joined = state.gather(report.joined)
            if joined is not None:
                self._joined(state, joined, now_s)
        elif kind == "left":
            self._leave(self._own(state, report.left.ids), f"agent {agent}: {quoted(report.left.reason)}")
        elif kind == "held":
            self._held(state, dict(zip(report.held.ids, report.held.needed_bytes, strict=False)))
        elif kind == "shrunk":
            limits = dict(zip(report.shrunk.ids, report.shrunk.limit_bytes, strict=False))
            # A container whose grant is on its way will get that limit, so its shrinking does not count.
            ids = _ids(self._own(state, limits))
            noted = self.memory.report(ids, np.array([limits[id_] for id_ in ids.tolist()], np.float64))
            kept = {id_: limits[id_] for id_ in ids[noted].tolist()}
            # The allocator is called at once, because it may decide on these containers before the other
            # agents have answered.
            answered = self._reclaims.answer(report.shrunk.request, agent)
            if kept or answered:
                self._reclaimed(Shrunk(_ids(answered), _ids(kept), _ids(kept.values()), at_s))

    def _confirm(self) -> None:
        """Record all limits that hosts have put in force since the last call."""
        done, self._done = self._done, []
        for ledger, sent in (
            (self.cpu, [order.cpu for order in done if order.cpu is not None]),
            (self.memory, [order.memory for order in done if order.memory is not None]),
        ):
            if sent:
                ledger.confirm(
                    np.concatenate([changes.ids for changes in sent]),
                    np.concatenate([changes.values for changes in sent]),
                )

    def _held(self, state: AgentState, needed: Mapping[int, int]) -> None:
        ids = [id_ for id_ in self._own(state, needed) if needed[id_] > 0]
        if ids:
            # An agent may report any number, so no more is granted than the application has.
            most = [self.deployment.applications[self.members[id_].app].memory_limit_bytes for id_ in ids]
            wanted = _ids(min(needed[id_], limit) for id_, limit in zip(ids, most, strict=True))
            event = OomEvents(_ids(ids), wanted, self._at_s)
            self._carry_out(self.allocator.on_oom(event), answer=self.allocator.traps_oom)

    def telemetry(self, batches: Sequence[tuple[str, Batch]], now_s: float) -> None:
        """Hand the records of datagrams to the allocator. batches: (agent, records)."""
        numbers = [self.agents[agent].number for agent, _ in batches]
        records, possible = unpack(batch.body for _, batch in batches)
        speakers = np.repeat(numbers, [batch.records for _, batch in batches])
        own = self.latest.own(records.ids, speakers)
        self._refuse_records("impossible record", speakers[own & ~possible])
        self._refuse_records("not its container", speakers[~own])
        for rows in rounds(records.ids, np.flatnonzero(own & possible), self.latest.size):
            newer = self.latest.take(records, rows)
            self.stale += len(rows) - len(newer)
            self._period(records, newer, now_s)
        # The first datagram of each agent counts.
        sent_ns = [batch.sent_ns for _, batch in batches]
        self._sent_ns = dict(zip(numbers[::-1], sent_ns[::-1], strict=True)) | self._sent_ns

    def _refuse_records(self, kind: Kind, speakers: Ids) -> None:
        for number, count in zip(*np.unique(speakers, return_counts=True), strict=True):
            self._refusals.add(kind, f"{count} records of agent {self._by_number[number].name}", int(count))

    def _period(self, records: Records, rows: Ids, now_s: float) -> None:
        if not rows.size or not self.started:
            return
        self.reports += len(rows)
        # Without a limit, no period can be throttled and no runtime is unused. So the allocator gets no
        # record of a container before the decided limit is in force, unless the policy decided that there is
        # no limit.
        told = records.quota_cores[rows] < np.inf
        if not told.all():
            told |= self.cpu.wanted(records.ids[rows]) >= LARGE_CORES
        limited = rows[told]
        self.unlimited += len(rows) - len(limited)
        if not limited.size:
            return
        of = limited if len(limited) < len(records.ids) else slice(None)
        self._carry_out(
            self.allocator.on_period(
                PeriodStats(
                    ids=records.ids[of],
                    quota_cores=records.quota_cores[of],
                    unused_cores=records.unused_cores[of],
                    throttled=records.throttled[of],
                    usage_cores=records.usage_cores[of],
                    memory_bytes=records.memory_bytes[of],
                    period_s=QUOTA_PERIOD_US / 1e6,
                    at_s=now_s - self._began_s,
                )
            )
        )

    # --- members ---------------------------------------------------------------------------------

    def _joined(self, state: AgentState, joined: Joined, now_s: float) -> None:
        for failed in joined.failed:
            self._refusals.add(
                "container failed", f"agent {state.name}, {quoted(failed.name)}: {quoted(failed.problem)}"
            )
        present = {container.name: container for container in joined.containers}
        doubles = len(joined.containers) - len(present)
        if doubles:
            self._refusals.add("container twice", f"agent {state.name} has two of one name", doubles)
        kept: list[tuple[Member, Present]] = []
        gone: list[int] = []
        for member in state.members.values():
            container = present.get(member.name)
            if container is not None and container.incarnation == member.incarnation:
                kept.append((member, container))
            elif joined.complete or container is not None:
                gone.append(member.id)
        if gone:
            self._leave(gone, f"agent {state.name} no longer has them")
        if kept:
            self._resume(state, kept)
        for name, container in present.items():
            if name not in state.members:
                self.newcomers.note(state.name, container)
        state.complete = state.complete or joined.complete
        if self.started:
            self._admit()
        else:
            self.tick(now_s)

    def _part(self, state: AgentState, now_s: float) -> None:
        """Record that messages in transit to an agent may be lost, and that the agent will not answer
        them."""
        self._confirm()
        self.cpu.part(state.ids)
        self.memory.part(state.ids)
        state.silence()
        self.newcomers.forget(state.name)
        for app in self._reclaims.without(state.name):
            self._reclaimed(Shrunk(_ids([app]), _ids(()), _ids(()), now_s - self._began_s))

    def _resume(self, state: AgentState, kept: Sequence[tuple[Member, Present]]) -> None:
        for member, _ in kept:
            state.name_again(member)
        self._spoken_to.add(state.number)
        ids = _ids(member.id for member, _ in kept)
        self.latest.forget_ends(ids)
        limits = np.array([in_force(container) for _, container in kept], np.float64)
        self.cpu.resume(ids, limits[:, 0])
        self.memory.resume(ids, limits[:, 1])

    def _admit(self) -> None:
        self.newcomers.admit(self._join, self._reject)

    def _reject(self, newcomer: Newcomer, error: ScenarioError) -> None:
        state, name = self.agents[newcomer.agent], newcomer.present.name
        state.outbox.rejected[name] = None
        self._spoken_to.add(state.number)
        self._refusals.add("does not fit", f"container {quoted(name)}: {error}")

    def _join(self, newcomers: Sequence[Newcomer]) -> None:
        cores = [newcomer.peak_cores for newcomer in newcomers]
        sizes = [newcomer.peak_bytes for newcomer in newcomers]
        states = [self.agents[newcomer.agent] for newcomer in newcomers]
        join = Join(
            app=_ids(newcomer.app for newcomer in newcomers),
            host_cores=np.array([state.host_cores for state in states]),
            peak_cores=None if None in cores else np.array(cores, np.float64),
            peak_bytes=None if None in sizes else np.array(sizes, np.int64),
        )
        if self.started:
            decision = self.allocator.on_join(join)
        else:
            decision = self.allocator.start(self.deployment.applications, join)
            self.started = True
        ids = decision.cpu.ids[-len(newcomers) :]
        for id_, newcomer, state in zip(ids.tolist(), newcomers, states, strict=True):
            present = newcomer.present
            member = Member(id_, newcomer.agent, present.name, newcomer.app, present.incarnation)
            self.members[id_] = member
            state.add(member)
        # A container that another system started without limits does not count before it has one.
        limits = np.array([in_force(newcomer.present) for newcomer in newcomers], np.float64)
        running = np.array([newcomer.present.running for newcomer in newcomers])
        numbers = _ids(state.number for state in states)
        self._spoken_to |= set(numbers.tolist())
        self.latest.join(ids, numbers, join.app)
        self.cpu.join(ids, join.app, np.where(running & (limits[:, 0] < LARGE_CORES), limits[:, 0], 0.0))
        self.memory.join(ids, join.app, np.where(running & (limits[:, 1] < LARGE_BYTES), limits[:, 1], 0.0))
        self._carry_out(decision)

    def _leave(self, ids: Sequence[int], why: str) -> None:
        if not ids:
            return
        left = [self.members.pop(id_) for id_ in ids]
        for member in left:
            self.agents[member.agent].remove(member)
        gone = _ids(ids)
        for columns in (self.cpu, self.memory, self.latest):
            columns.leave(gone)
        names = ", ".join(quoted(member.name) for member in left[:_NAMES_LOGGED])
        more = f" and {len(left) - _NAMES_LOGGED} more" if len(left) > _NAMES_LOGGED else ""
        _log.info("%s%s left (%s)", names, more, why)
        self._carry_out(self.allocator.on_leave(gone))

    def _own(self, state: AgentState, ids: Iterable[int]) -> list[int]:
        """Return those of `ids` that are the agent's containers, each once. Others may have left."""
        members = ((id_, self.members.get(id_)) for id_ in dict.fromkeys(ids))
        return [id_ for id_, member in members if member is not None and member.agent == state.name]

    # --- decisions -------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        cpu, memory = decision.cpu, decision.memory
        if cpu.ids.size:
            self.cpu.decide(cpu.ids, cpu.quota_cores, cpu.reason)
        if memory.ids.size:
            self.memory.decide(memory.ids, memory.limit_bytes.astype(np.float64), memory.reason)
        self.limit_changes += len(cpu.ids) + len(memory.ids)
        for id_, cores in zip(decision.requests.ids.tolist(), decision.requests.cores.tolist(), strict=True):
            if (member := self.members.get(id_)) is not None:
                self.members[id_] = self.agents[member.agent].request(member, cores)
                self._spoken_to.add(self.agents[member.agent].number)
        if answer:
            self.oom_grants += len(memory.ids)
        for id_ in decision.restart.tolist():
            state = self.agents[self.members[id_].agent]
            state.outbox.restart[id_] = None
            self._spoken_to.add(state.number)
        if decision.kill.size:
            self._kill([self.members[id_] for id_ in decision.kill.tolist()])
        for app in decision.reclaim.tolist():
            self._reclaim(app)

    def _kill(self, members: Sequence[Member]) -> None:
        for app in {member.app for member in members}:
            whole = all(self._by_number[number].live for number in self.latest.owners_of_app(app))
            for member in members:
                if member.app != app:
                    continue
                if not whole:
                    self.kills_withheld += 1
                    continue
                self.kills += 1
                state = self.agents[member.agent]
                state.outbox.kill[member.id] = None
                self._spoken_to.add(state.number)
                _log.warning("%s: no memory is left for it, it is killed", quoted(member.name))

    def _reclaim(self, app: int) -> None:
        owners = self.latest.owners_of_app(app)
        asked = [state for number in owners if (state := self._by_number[number]).live]
        request = self._reclaims.ask(app, {state.name for state in asked})
        for state in asked:
            state.outbox.reclaims[request] = app
            self._spoken_to.add(state.number)
        if not asked:
            # No agent can be asked, because all are lost. The allocator learns that nothing was reclaimed,
            # and waiting containers stay held.
            self._reclaimed(Shrunk(_ids([app]), _ids(()), _ids(()), self._at_s))

    def _reclaimed(self, shrunk: Shrunk) -> None:
        self._carry_out(self.allocator.on_reclaimed(shrunk), answer=True)


def _ids(numbers: Iterable[int]) -> Ids:
    return np.array(list(numbers), np.int64)
