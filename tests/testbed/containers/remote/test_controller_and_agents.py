"""Controller and agents over loopback, on pretended hosts: needs neither root nor cgroups."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import socket
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from testbed.containers.remote import certificates, door, service
from testbed.containers.remote import members as members_module
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.datagrams import Sealer
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.messages_pb2 import Order, Report, Wanted
from testbed.containers.remote.origin import Origin
from tests.testbed.containers.remote.cluster import Cluster, cluster, deployment, until
from tests.testbed.containers.remote.fake_host import FakePlace, first_limits, made_up
from twinbed import BackendError


@pytest.mark.slow
async def test_agents_register_and_their_containers_share_the_global_limit(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller = await started(here)
        await until(lambda: len(here.quotas()) == 4 and max(here.quotas().values()) < math.inf, "limits")
        assert sum(here.quotas().values()) <= 4.0 + 1e-9
        await until(lambda: controller.books.reports > 20, "telemetry")
        assert controller.gate.lost == 0
        assert not controller.refusals.counts


async def test_limits_follow_the_use_and_never_exceed_the_global_limit(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller, _ = await here.controller()
        agents = [here.agent(name)[0] for name in here.hosts]
        here.hosts["a0"].use_cores["a0-c0"] = 3.0
        await until(lambda: len(here.quotas()) == 4 and max(here.quotas().values()) < math.inf, "limits")
        highest = 0.0
        while here.quotas()["a0-c0"] < 2.5:
            highest = max(highest, sum(here.quotas().values()))
            await asyncio.sleep(0.005)
        assert highest <= 4.0 + 1e-4
        assert controller.books.cpu.bounds()[0] <= 4.0 + 1e-6
        await until(lambda: bool(here.latencies_s), "told of a round trip")
        assert {*here.latencies_s} <= {ns / 1e9 for agent in agents for ns in agent.round_trips_ns}


@pytest.mark.slow
async def test_a_lost_agent_is_counted_and_its_limits_stay_in_the_books(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(tmp_path, deployment()) as here:
        controller, _ = await here.controller()
        _, first = here.agent("a0")
        here.agent("a1")
        await until(lambda: len(controller.books.members) == 4, "all joined")
        await until(lambda: max(here.quotas().values()) < 0.5, "idle ones were cut")
        await first.kill()
        await until(lambda: controller.books.agents_lost == 1, "noticed")
        before = {name: here.quotas()[name] for name in ("a0-c0", "a0-c1")}
        ids = {member.name: member.id for member in controller.books.members.values()}
        here.hosts["a1"].use_cores |= {"a1-c0": 4.0, "a1-c1": 4.0}
        await until(lambda: here.quotas()["a1-c0"] > 1.2, "the others go on")
        assert {name: here.quotas()[name] for name in before} == before
        assert sum(here.quotas().values()) <= 4.0 + 1e-4
        assert not any(group.removed for group in here.hosts["a0"].place.groups.values())

        reports = controller.books.reports
        here.agent("a0")
        await until(lambda: controller.books.agents["a0"].complete, "back")
        await until(lambda: controller.books.reports > reports + 20, "reports again")
        assert {member.name: member.id for member in controller.books.members.values()} == ids
    lost = [entry.getMessage() for entry in caplog.records if "agent a0 is lost" in entry.getMessage()]
    assert len(lost) == 1
    assert "2 containers keep their limits" in lost[0]


@pytest.mark.slow
async def test_without_a_controller_limits_hold_and_the_next_one_takes_over(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        former, running = await here.controller()
        agents = [here.agent(name)[0] for name in here.hosts]
        await until(lambda: len(former.books.members) == 4, "all joined")
        await until(lambda: max(here.quotas().values()) < math.inf, "limits")
        await running.kill()
        await until(lambda: not any(agent.connected for agent in agents), "noticed")
        groups = [group for host in here.hosts.values() for group in host.place.groups.values()]
        written = [len(each.quotas) + len(each.limits) for each in groups]
        held = groups[0].armed
        assert held is not None
        held.hold()
        await asyncio.sleep(1.0)  # nothing may happen in this time, so there is nothing to wait for
        assert [len(each.quotas) + len(each.limits) for each in groups] == written
        assert held.is_held
        assert held.surrendered == 0

        controller, _ = await here.controller()
        await until(lambda: len(controller.books.members) == 4, "registered anew")
        await until(lambda: not held.is_held, "granted by the next controller")
        await until(lambda: controller.books.reports > 8, "telemetry")
        assert sum(here.quotas().values()) <= 4.0 + 1e-4
        assert held.surrendered == 0
        assert not any(each.removed for each in groups)


async def test_held_containers_are_granted_memory_and_reclaims_ask_every_host(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller = await joined(here)
        await until(lambda: max(here.quotas().values()) < math.inf, "limits")
        group = here.hosts["a0"].place.groups["a0-c0"]
        everyone = [each for host in here.hosts.values() for each in host.place.groups.values()]
        await until(lambda: group.armed is not None and bool(group.limits), "armed")
        assert group.armed is not None
        # The whole pool and what the others do not use are needed until it has 3 of 4 GiB.
        while group.limit_bytes < 3 << 30:
            group.charged = group.limit_bytes + (256 << 20)
            before = group.limit_bytes
            group.armed.hold()
            await until(lambda before=before: group.limit_bytes > before, "granted")  # type: ignore[misc]
            total = sum(each.limit_bytes for each in everyone)
            assert total <= 4 << 30
        assert controller.books.oom_grants > 0
        assert min(each.limit_bytes for each in everyone) < 256 << 20
        assert controller.books.kills == 0


@pytest.mark.slow
async def test_nobody_is_killed_for_memory_that_a_lost_host_might_free(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(each=1)) as here:
        controller, _ = await here.controller()
        _, other = here.agent("a1")
        here.agent("a0")
        await until(lambda: len(controller.books.members) == 2, "all joined")
        group = here.hosts["a0"].place.groups["a0-c0"]
        await until(lambda: group.armed is not None, "armed")
        await other.kill()
        await until(lambda: controller.books.agents_lost == 1, "noticed")
        assert group.armed is not None
        group.charged = 5 << 30
        group.armed.hold()
        await until(lambda: controller.books.kills_withheld > 0, "withheld")
        assert group.armed.is_held
        assert (controller.books.kills, group.armed.surrendered) == (0, 0)

        here.agent("a1")
        await until(
            lambda: group.armed is not None and group.armed.surrendered > 0, "decided when all are there"
        )


@pytest.mark.slow
async def test_an_orderly_end_of_an_agent_frees_its_limits(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller, _ = await here.controller()
        _, first = here.agent("a0")
        here.agent("a1")
        await until(lambda: len(controller.books.members) == 4, "all joined")
        await first.end()
        assert all(group.removed for group in here.hosts["a0"].place.groups.values())
        await until(lambda: len(controller.books.members) == 2, "left")
        here.hosts["a1"].use_cores["a1-c0"] = 4.0
        await until(lambda: here.quotas()["a1-c0"] > 2.0, "its share is used")


async def test_an_agent_that_ends_before_its_containers_have_ids_frees_their_limits(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        agent, running = here.agent("a0")
        agent.carry_out = lambda _order: None  # type: ignore[method-assign]
        await until(lambda: len(controller.books.members) == 2, "joined")
        await running.end()
        await until(lambda: not controller.books.members, "left")


async def test_long_lists_go_in_pieces_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "PIECE_BYTES", 100)
    monkeypatch.setattr(members_module, "MOST_PER_ORDER", 7)
    async with cluster(tmp_path, deployment(agents=1, each=50)) as here:
        controller, _ = await here.controller()
        here.agent("a0")
        await until(lambda: len(controller.books.members) == 50, "all joined")
        await until(lambda: len(here.quotas()) == 50 and max(here.quotas().values()) < math.inf, "limits")
        assert not controller.refusals.counts


async def test_a_cgroup_removed_under_an_agent_leaves_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller = await joined(here)
        here.hosts["a1"].place.groups["a1-c0"].gone = True
        await until(lambda: len(controller.books.members) == 3, "left")
        assert controller.books.agents_lost == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["expired", "foreign"])
async def test_certificates_that_are_not_good_are_refused_counted_and_logged_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(door, "WAIT_S", 0.2)
    certificates.init(tmp_path / "other")
    ours = tmp_path / "ours"
    certificates.init(ours)

    def bad() -> certificates.Identity:
        if kind == "foreign":
            made = certificates.enroll(tmp_path / "other", "a0")
            return dataclasses.replace(made, authority=certificates.controller_identity(ours).authority)
        return certificates.enroll(ours, "a0", days=1, now=datetime(2026, 1, 1, tzinfo=UTC))

    caplog.set_level(logging.WARNING)
    async with cluster(ours, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        agent, _ = here.agent("a0", bad())
        await until(lambda: controller.refusals.counts["certificate"] >= 2, "counted")
        assert not agent.connected
        assert not controller.books.agents
    said = [entry for entry in caplog.records if entry.name == "twinbed.controller"]
    assert 1 <= len(said) <= 4
    assert "refused, certificate" in said[0].getMessage()


async def test_a_client_without_tls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "WAIT_S", 0.2)
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        await until(lambda: controller.refusals.counts["certificate"] == 1, "counted")


async def test_an_agent_cannot_register_under_another_name_or_twice(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller, _ = await here.controller()
        stolen = dataclasses.replace(here.identity("a1"), name="a0")
        agent, thief = here.agent("a0", stolen)
        await until(lambda: controller.refusals.counts["registration"] >= 1, "refused")
        assert not agent.connected
        await thief.kill()
        here.agent("a0")
        await until(lambda: "a0" in controller.books.agents, "the real one")
        before = controller.refusals.counts["registration"]
        second, _ = here.agent("a0")
        await until(lambda: controller.refusals.counts["registration"] > before, "refused")
        assert not second.connected
        assert controller.books.agents_lost == 0


async def test_datagrams_of_others_change_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller = await started(here)
        await until(lambda: controller.books.reports > 4, "telemetry")
        (session,) = [s for s, each in controller.by_session.items() if each.agent == "a0"]
        victim = next(member for member in controller.books.members.values() if member.agent == "a1")
        stolen = controller.gate.sessions[session].key
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=("127.0.0.1", here.port)
        )
        record = made_up([victim.id], 1 << 60, 1.0, 1.0, throttled=True, throttled_s=1.0)
        for key, number in ((b"?" * 32, session), (stolen, session + 1)):
            transport.sendto(Sealer(number, key).seal(record, 1)[0])
        transport.sendto(b"\xff" * 2000)
        transport.sendto(b"")
        # An agent's own key does not let it speak for another's container.
        sealer = Sealer(session, stolen)
        sealer.sequence = 1 << 40
        transport.sendto(sealer.seal(record, 1)[0])
        kinds = ("forged", "foreign", "oversized", "not its container")
        await until(lambda: all(controller.refusals.counts[each] for each in kinds), "refused")
        transport.close()


async def test_bytes_that_are_no_message_end_the_call_and_are_counted(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        connection = service.channel(f"127.0.0.1:{here.port}", here.identity("a0"))
        for said in (b"\xff\xff\xff", b"", Report(applied=1).SerializeToString()):
            call = connection.stream_stream("/twinbed.Control/Attend")()
            await call.write(said)
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        await connection.close()
        assert controller.refusals.counts["malformed message"] == 3
        assert not controller.books.agents


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["static", "vpa", "autopilot", "autothrottle", "firm", "unlimited"])
async def test_any_policy_runs(tmp_path: Path, policy: str) -> None:
    deployed = deployment(cores=8.0)
    profiled = {"peak_cores": 0.5, "peak_bytes": 1 << 28}
    placed = tuple(dataclasses.replace(container, **profiled) for container in deployed.containers)
    async with cluster(tmp_path, dataclasses.replace(deployed, containers=placed), policy) as here:
        controller = await started(here)
        await until(lambda: controller.books.reports > 20, "telemetry")
        groups = [group for host in here.hosts.values() for group in host.place.groups.values()]
        assert all(group.quotas and group.limits for group in groups)


def test_a_container_that_vanishes_while_it_is_described_is_gone() -> None:
    place = FakePlace()
    hosting = Hosting(place, None)
    wanted = [Wanted(name=name, attach={"": name}) for name in ("brief", "lasting")]
    assert len(hosting.converge(wanted, ()).containers) == 2
    place.groups["brief"].gone = True
    assert [container.name for container in hosting.converge(wanted, ()).containers] == ["lasting"]
    assert [*hosting.containers] == ["lasting"]
    place.create("briefer").gone = True
    assert not hosting.appeared(Origin("1:x", attach={"": "briefer"}, watch=1)).containers


def test_a_container_that_cannot_be_let_go_holds_no_other_one_up(caplog: pytest.LogCaptureFixture) -> None:
    place = FakePlace()
    hosting = Hosting(place, None)
    wanted = [Wanted(name=name, attach={"": name}) for name in ("stuck", "fine")]
    hosting.converge(wanted, ())
    place.groups["stuck"].remove = place.create("new").remove = refused  # type: ignore[method-assign]
    hosting.close()
    assert not hosting.containers
    assert place.groups["fine"].removed
    assert place.noted == {}
    assert "container stuck: cpu.max: was refused" in caplog.text
    without_audit = Hosting(place, None, SimpleNamespace(note=refused))  # type: ignore[arg-type]
    (failed,) = without_audit.converge([Wanted(name="new", attach={"": "new"})], ()).failed
    assert failed.problem == "cpu.max: was refused"


def test_a_report_says_which_limits_the_kernel_refused() -> None:
    place = FakePlace()
    hosting = Hosting(place, None)
    hosting.converge([Wanted(name="c", attach={"": "c"})], ())
    group = place.groups["c"]
    group.refuses = True
    assert in_force_after(hosting, 1.0, 64) == ([], []), "a container without a limit has none to report"
    group.quota_cores, group.limit_bytes = 2.0, 128
    assert in_force_after(hosting, 1.0, 64) == ([2.0], [128]), "the limits of the system that runs it"
    group.refuses = False
    assert in_force_after(hosting, 1.000_005, 64) == ([], []), "a quota is rounded down"
    group.refuses = True
    assert in_force_after(hosting, 0.5, 32) == ([1.0], [64])
    assert in_force_after(hosting, 3.0, 96) == ([], []), "a raise that was refused takes less, not more"


def test_a_container_that_went_before_it_had_an_id_is_reported() -> None:
    place, report = FakePlace(), Report()
    hosting = Hosting(place, None)
    hosting.converge([Wanted(name=name, attach={"": name}) for name in ("brief", "lasting")], ())
    place.groups["brief"].gone = True
    hosting.supervise(0.0)
    hosting.carry_out(first_limits(["brief", "lasting"]), report)
    assert [*report.left.ids] == [1]


def test_what_could_not_be_attached_or_was_removed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    place = FakePlace()
    hosting = Hosting(place, None)
    attach, place.attach = place.attach, refused  # type: ignore[method-assign]
    wanted = [Wanted(name="late", attach={"": "late"})]
    assert [failed.name for failed in hosting.converge(wanted, ()).failed] == ["late"]
    assert not hosting.again().containers
    assert caplog.text.count("cpu.max: was refused") == 1, "a problem is told once"
    place.attach = attach  # type: ignore[method-assign]
    (first,) = hosting.again().containers
    place.groups["late"].gone = True
    hosting.supervise(0.0)
    del place.groups["late"]
    (second,) = hosting.again().containers
    assert first.incarnation != second.incarnation
    assert [*place.noted] == [*hosting.containers] == ["late"]
    hosting.gone(hosting.containers["late"], "the controller says that it does not fit")
    assert not hosting.again().containers
    place.attach = refused  # type: ignore[method-assign]
    hosting.appeared(Origin("1:x", attach={"": "x"}, watch=1))
    hosting.vanished("1:x")
    hosting.converge((), ())
    place.attach = attach  # type: ignore[method-assign]
    assert not hosting.again().containers


def in_force_after(hosting: Hosting, cores: float, size_bytes: int) -> tuple[list[float], list[int]]:
    report = Report()
    hosting.carry_out(first_limits(["c"], cores, size_bytes), report)
    assert [*report.actual_cpu_ids] == [1] * len(report.actual_cores)
    return [*report.actual_cores], [*report.actual_bytes]


async def test_a_report_confirms_no_order_whose_own_report_is_still_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        agent, running = here.agent("a0")
        await running.end()
        said: asyncio.Queue[Report] = asyncio.Queue()
        for number in (5, 6):
            agent.carry_out(Order(number=number))
        monkeypatch.setattr(service, "HEARTBEAT_S", 0.0)
        speaking = asyncio.create_task(agent._speak(SimpleNamespace(write=said.put), 1))
        assert [(await said.get()).applied for _ in range(3)] == [5, 6, 6], "the last is a heartbeat"
        speaking.cancel()


def refused(*_: object, **__: object) -> None:
    raise BackendError("cpu.max: was refused")


async def started(here: Cluster) -> Controller:
    """Start a controller and every agent."""
    controller, _ = await here.controller()
    for name in here.hosts:
        here.agent(name)
    return controller


async def joined(here: Cluster) -> Controller:
    """Start a controller and every agent, and wait until all four containers have joined."""
    controller = await started(here)
    await until(lambda: len(controller.books.members) == 4, "all joined")
    return controller


async def test_an_agent_that_does_not_find_the_telemetry_port_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find, failures = asyncio.BaseEventLoop.getaddrinfo, [socket.gaierror(-3, "no name server answers")]

    async def found(*args: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return await find(*args, **options)

    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", found)
        here.agent("a0")
        await until(lambda: controller.books.reports > 0, "telemetry")
    assert "telemetry cannot be sent to it (no name server answers)" in caplog.text
