"""The controller without its sockets: agents, containers, and the allocator between them.

For: turning each thing that agents report into orders to agents. Not for: transport and clocks
(controller.py), nor limits on their way (ledger.py). One method per event; `take_orders` returns the orders
that came of them. Three rules where the design leaves a choice:

- The allocator starts when all agents of the deployment are there, or GATHER_S after the first.
- Containers of a lost agent keep their ids, and their limits count until the agent is back and says
  otherwise.
- While an application has containers on a lost agent, none of its containers is killed for want of memory:
  memory there might be free. A container that needs more stays held and asks again. No failure of ours kills.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from control.allocator.model import Decision, Ids, Join, OomEvents, PeriodStats, Shrunk
from control.allocator.ports import Allocator
from testbed.containers.cgroup.group import QUOTA_PERIOD_US
from testbed.containers.remote.datagrams import Batch
from testbed.containers.remote.deployment import Deployment, Placed
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES, Change, Ledger
from testbed.containers.remote.members import AgentState, Member, Reclaims
from testbed.containers.remote.messages_pb2 import Hello, Joined, Order, Present, Report
from testbed.containers.remote.refusals import Refusals
from twinbed import ScenarioError

GATHER_S = 5.0
"""How long the agents of a deployment are waited for, s, before those that are there begin."""

_log = logging.getLogger("twinbed.controller")


class RefusedError(Exception):
    """An agent may not register as it wants to. The text is for the agent and for the log."""


@dataclass(frozen=True, slots=True)
class _Newcomer:
    agent: str
    app: int
    present: Present
    placed: Placed | None


class ControllerBooks:
    """One deployment under one allocator.

    began_s: the clock at time 0 of what the allocator is told. All times are seconds of one monotonic clock.
    agents: by name; members: by id; cpu, memory: limits on their way. Counters since the start: reports
    (records taken), stale (records older than their container's last), oom_grants, kills, kills_withheld,
    limit_changes, agents_lost.
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
        self.started = False
        self.reports = self.stale = self.oom_grants = self.kills = self.kills_withheld = 0
        self.limit_changes = 0
        self.agents_lost = 0
        self._refusals = refusals
        self._began_s = began_s
        self._first_s: float | None = None
        self._at_s = 0.0
        self._newcomers: list[_Newcomer] = []
        self._reclaims = Reclaims()

    # --- agents ----------------------------------------------------------------------------------

    def register(self, hello: Hello, session: int, now_s: float) -> None:
        """Note an agent that is there; what it has comes with its first `joined`. Raises RefusedError."""
        if hello.name not in self.deployment.agents:
            raise RefusedError(f"agent {hello.name!r} is not in the deployment")
        if not 0 < hello.host_cores < LARGE_CORES:
            raise RefusedError(f"agent {hello.name!r} says it has {hello.host_cores:g} cores")
        state = self.agents.get(hello.name)
        if state is None:
            state = self.agents[hello.name] = AgentState(hello.name, 0, 0.0, 0, live=False)
        elif state.live and state.instance != hello.instance:
            raise RefusedError(f"agent {hello.name!r} is connected already, from another process")
        self._forget_newcomers(hello.name)
        state.begin(hello.instance, hello.host_cores, session)
        self._first_s = now_s if self._first_s is None else self._first_s
        _log.info("agent %s is there, %g cores", hello.name, hello.host_cores)

    def lost(self, agent: str, why: str, now_s: float) -> None:
        """Note that an agent's call ended or that it fell silent. Its containers keep their limits, here
        too."""
        state = self.agents[agent]
        state.live = False
        state.silence()
        self._forget_newcomers(agent)
        if state.members:
            self.agents_lost += 1
            _log.warning(
                "agent %s is lost (%s): its %d containers keep their limits", agent, why, len(state.members)
            )
        else:
            _log.info("agent %s left, it has no containers (%s)", agent, why)
        for answered in self._reclaims.without(agent):
            self._reclaimed(answered.shrunk(now_s - self._began_s))

    def tick(self, now_s: float) -> None:
        """Begin when agents have been waited for long enough. To be called now and then."""
        if self.started or not self._newcomers or self._first_s is None:
            return
        complete = {state.name for state in self.agents.values() if state.live and state.complete}
        if complete >= self.deployment.agents or now_s - self._first_s >= GATHER_S:
            self._admit()

    def take_orders(self) -> list[tuple[str, Order]]:
        """Return the orders to be sent, with the name of their live agent."""
        taken = [(state.name, state.take()) for state in self.agents.values() if state.live]
        return [(name, order) for name, order in taken if order is not None]

    # --- reports ---------------------------------------------------------------------------------

    def reported(self, agent: str, report: Report, now_s: float) -> None:
        """Take in anything that an agent says over the reliable channel, except its Hello."""
        state = self.agents[agent]
        state.acknowledge(report)
        at_s = self._at_s = now_s - self._began_s
        kind = report.WhichOneof("what")
        if kind == "joined":
            self._joined(state, report.joined, now_s)
        elif kind == "left":
            ids = self._own(state, report.left.ids)
            self._leave(ids, f"agent {agent}: {report.left.reason}")
        elif kind == "held":
            needed = dict(zip(report.held.ids, report.held.needed_bytes, strict=False))
            ids = [id_ for id_ in self._own(state, report.held.ids) if needed.get(id_, 0) > 0]
            if ids:
                # An agent may say what it wants: no more is granted than the application has.
                most = [self.deployment.applications[self.members[id_].app].memory_limit_bytes for id_ in ids]
                wanted = _ids(min(needed[id_], limit) for id_, limit in zip(ids, most, strict=True))
                event = OomEvents(_ids(ids), wanted, at_s)
                self._carry_out(self.allocator.on_oom(event), answer=self.allocator.traps_oom)
        elif kind == "shrunk":
            limits = dict(zip(report.shrunk.ids, report.shrunk.limit_bytes, strict=False))
            ids = self._own(state, report.shrunk.ids)
            # A container whose grant is on its way will get that limit, so its shrinking does not count.
            kept = {id_: limits[id_] for id_ in ids if id_ in limits and self._shrank(id_, limits[id_])}
            if report.shrunk.request:
                answered = self._reclaims.answer(report.shrunk.request, agent, kept)
                if answered is not None:
                    self._reclaimed(answered.shrunk(at_s))
            elif kept:
                self._reclaimed(Shrunk(_ids(()), _ids(kept), _ids(kept.values()), at_s))
        self._release()

    def telemetry(self, agent: str, batch: Batch, now_s: float) -> None:
        """Hand one datagram's records to the allocator."""
        records, state = batch.records, self.agents[agent]
        rows = []
        for row, (id_, end_ns) in enumerate(zip(records.ids.tolist(), records.end_ns.tolist(), strict=True)):
            member = self.members.get(id_)
            if member is None or member.agent != agent:
                self._refusals.add("not its container", f"a record of container {id_} from agent {agent}")
            elif end_ns <= member.end_ns:
                self.stale += 1
            else:
                member.end_ns = end_ns
                member.usage_cores = float(records.usage_cores[row])
                member.memory_bytes = int(records.memory_bytes[row])
                member.throttled_periods += bool(records.throttled[row])
                member.throttled_s += float(records.throttled_s[row])
                rows.append(row)
        if not rows or not self.started:
            return
        self.reports += len(rows)
        taken = slice(None) if len(rows) == len(records.ids) else np.array(rows)
        decision = self.allocator.on_period(
            PeriodStats(
                ids=records.ids[taken],
                quota_cores=records.quota_cores[taken],
                unused_cores=records.unused_cores[taken],
                throttled=records.throttled[taken],
                usage_cores=records.usage_cores[taken],
                memory_bytes=records.memory_bytes[taken],
                period_s=QUOTA_PERIOD_US / 1e6,
                at_s=now_s - self._began_s,
            )
        )
        self._carry_out(decision)
        self._release()
        if state.outbox.ByteSize():
            state.outbox.caused_ns = batch.sent_ns

    # --- members ---------------------------------------------------------------------------------

    def _joined(self, state: AgentState, joined: Joined, now_s: float) -> None:
        for failed in joined.failed:
            self._refusals.add("container failed", f"agent {state.name}, {failed.name}: {failed.problem}")
        kept = {
            present.name: present
            for present in joined.containers
            if present.name in state.members
            and state.members[present.name].incarnation == present.incarnation
        }
        names = {present.name for present in joined.containers}
        gone = [
            present.id
            for present in state.members.values()
            if present.name not in kept and (joined.complete or present.name in names)
        ]
        if gone:
            self._leave(gone, f"agent {state.name} no longer has them")
        self._resume(state, kept)
        for present in joined.containers:
            if present.name not in kept and not self._awaits(state.name, present.name):
                self._note_newcomer(state, present)
        state.complete = state.complete or joined.complete
        if self.started:
            self._admit()
        else:
            self.tick(now_s)

    def _resume(self, state: AgentState, kept: dict[str, Present]) -> None:
        members = [state.members[name] for name in kept]
        for member in members:
            state.outbox.named.add(name=member.name, id=member.id, app=member.app)
            # A new process of the agent may count its periods from another moment.
            member.end_ns = -1
        ids = [member.id for member in members]
        in_force = [_in_force(member) for member in kept.values()]
        state.put_cpu(self.cpu, self.cpu.resume(ids, [cores for cores, _ in in_force]))
        state.put_memory(self.memory, self.memory.resume(ids, [size for _, size in in_force]))

    def _note_newcomer(self, state: AgentState, present: Present) -> None:
        watches = self.deployment.watches_of(state.name)
        placed = self.deployment.containers_of(state.name).get(present.name)
        if present.watch and present.watch <= len(watches):
            app, placed = watches[present.watch - 1].app, None
        elif placed is not None and not present.watch:
            app = placed.app
        else:
            self._refusals.add("not deployed", f"container {present.name!r} of agent {state.name}")
            return
        self._newcomers.append(_Newcomer(state.name, app, present, placed))

    def _awaits(self, agent: str, name: str) -> bool:
        return any(newcomer.agent == agent and newcomer.present.name == name for newcomer in self._newcomers)

    def _forget_newcomers(self, agent: str) -> None:
        self._newcomers = [newcomer for newcomer in self._newcomers if newcomer.agent != agent]

    def _admit(self) -> None:
        """Let all newcomers join at once; where they do not all fit, one by one."""
        newcomers, self._newcomers = self._newcomers, []
        if not newcomers:
            return
        try:
            self._join(newcomers)
        except ScenarioError as error:
            if len(newcomers) > 1:
                for newcomer in newcomers:
                    self._newcomers = [newcomer]
                    self._admit()
                return
            (alone,) = newcomers
            self.agents[alone.agent].outbox.rejected.append(alone.present.name)
            self._refusals.add("does not fit", f"container {alone.present.name}: {error}")

    def _join(self, newcomers: Sequence[_Newcomer]) -> None:
        peaks = [newcomer.placed for newcomer in newcomers]
        cores = [None if newcomer is None else newcomer.peak_cores for newcomer in peaks]
        sizes = [None if newcomer is None else newcomer.peak_bytes for newcomer in peaks]
        join = Join(
            app=_ids(newcomer.app for newcomer in newcomers),
            host_cores=np.array([self.agents[newcomer.agent].host_cores for newcomer in newcomers]),
            peak_cores=None if None in cores else np.array(cores, np.float64),
            peak_bytes=None if None in sizes else np.array(sizes, np.int64),
        )
        if self.started:
            decision = self.allocator.on_join(join)
        else:
            decision = self.allocator.start(self.deployment.applications, join)
            self.started = True
        for id_, newcomer in zip(decision.cpu.ids[-len(newcomers) :].tolist(), newcomers, strict=True):
            present, state = newcomer.present, self.agents[newcomer.agent]
            member = Member(id_, newcomer.agent, present.name, newcomer.app, present.incarnation)
            self.members[id_] = state.members[member.name] = member
            # A container that somebody else started without limits does not count before it has one.
            quota, limit = _in_force(present) if present.running else (0.0, 0)
            self.cpu.join(id_, newcomer.app, quota if quota < LARGE_CORES else 0.0)
            self.memory.join(id_, newcomer.app, limit if limit < LARGE_BYTES else 0)
            state.outbox.named.add(name=member.name, id=id_, app=newcomer.app)
        self._carry_out(decision)
        self._release()

    def _leave(self, ids: Sequence[int], why: str) -> None:
        if not ids:
            return
        names = []
        for id_ in ids:
            member = self.members.pop(id_)
            del self.agents[member.agent].members[member.name]
            self.cpu.leave(id_)
            self.memory.leave(id_)
            names.append(member.name)
        _log.info("%s left (%s)", ", ".join(names), why)
        self._carry_out(self.allocator.on_leave(_ids(ids)))
        self._release()

    def _shrank(self, id_: int, limit_bytes: int) -> bool:
        return limit_bytes >= 0 and self.memory.report(id_, limit_bytes)

    def _own(self, state: AgentState, ids: Iterable[int]) -> list[int]:
        """Return those ids that are the agent's, once each: it may speak before it hears that one is not."""
        mine = {member.id for member in state.members.values()}
        return [id_ for id_ in dict.fromkeys(ids) if id_ in mine]

    # --- decisions -------------------------------------------------------------------------------

    def _carry_out(self, decision: Decision, *, answer: bool = False) -> None:
        cpu, memory = decision.cpu, decision.memory
        for id_, cores, reason in zip(
            cpu.ids.tolist(), cpu.quota_cores.tolist(), cpu.reason.tolist(), strict=True
        ):
            change = self.cpu.decide(id_, cores, reason)
            if change is not None:
                self._put(self.cpu, [change])
        for id_, size, reason in zip(
            memory.ids.tolist(), memory.limit_bytes.tolist(), memory.reason.tolist(), strict=True
        ):
            change = self.memory.decide(id_, size, reason)
            if change is not None:
                self._put(self.memory, [change])
        self.limit_changes += len(cpu.ids) + len(memory.ids)
        if answer:
            self.oom_grants += len(memory.ids)
        for id_ in decision.restart.tolist():
            self.agents[self.members[id_].agent].outbox.restart.append(id_)
        for id_ in decision.kill.tolist():
            self._kill(self.members[id_])
        for app in decision.reclaim.tolist():
            self._reclaim(app)

    def _kill(self, member: Member) -> None:
        kin = [other for other in self.members.values() if other.app == member.app]
        if not all(self.agents[other.agent].live for other in kin):
            self.kills_withheld += 1
            return
        self.kills += 1
        self.agents[member.agent].outbox.kill.append(member.id)
        _log.warning("%s: no memory is left for it, it is killed", member.name)

    def _reclaim(self, app: int) -> None:
        asked = {member.agent for member in self.members.values() if member.app == app}
        asked = {name for name in asked if self.agents[name].live}
        request = self._reclaims.ask(app, asked)
        for name in asked:
            self.agents[name].outbox.reclaim.add(request=request, app=app)
        if not asked:
            # No agent can be asked, they are lost: the allocator is told so, and who waits stays held.
            self._reclaimed(Shrunk(_ids([app]), _ids(()), _ids(()), self._at_s))

    def _reclaimed(self, shrunk: Shrunk) -> None:
        self._carry_out(self.allocator.on_reclaimed(shrunk), answer=True)

    def _release(self) -> None:
        """Send raises that have room by now."""
        self._put(self.cpu, self.cpu.released())
        self._put(self.memory, self.memory.released())

    def _put(self, ledger: Ledger, changes: Sequence[Change]) -> None:
        for change in changes:
            state = self.agents[self.members[change.id].agent]
            if not state.live:
                continue
            if ledger is self.cpu:
                state.put_cpu(ledger, [change])
            else:
                state.put_memory(ledger, [change])


def _in_force(present: Present) -> tuple[float, int]:
    """Return its limits, LARGE_* for none and for a value that cannot be one."""
    cores, size = present.quota_cores, present.limit_bytes
    return (
        cores if 0 <= cores < LARGE_CORES else LARGE_CORES,
        size if 0 <= size < LARGE_BYTES else LARGE_BYTES,
    )


def _ids(numbers: Iterable[int]) -> Ids:
    return np.array(list(numbers), np.int64)
