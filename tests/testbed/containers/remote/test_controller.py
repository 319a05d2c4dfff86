"""The controller's clocks: when it decides, and when it rests; and how it begins, and calls with it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

from control.allocator import make
from control.allocator.model import Application
from testbed.containers.remote import certificates, service
from testbed.containers.remote.controller import Controller
from testbed.containers.remote.deployment import Deployment, Placed, Watch
from testbed.containers.remote.messages_pb2 import Hello, Order, Report
from testbed.containers.remote.origin import Watcher
from tests.testbed.containers.remote.cluster import cluster, deployment, until
from tests.testbed.containers.remote.test_hostile_agents import speaker
from twinbed import BackendError

LONGEST_S = 1.0


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.001, 0.004), (0.1, 0.4), (60.0, LONGEST_S)])
async def test_deciding_rests_in_proportion_and_a_pause_does_not_hold_orders_back(
    monkeypatch: pytest.MonkeyPatch, took_s: float, rest_s: float
) -> None:
    loop, now_s = asyncio.get_running_loop(), 1000.0

    def stand_still() -> None:
        nonlocal now_s
        now_s += took_s

    controller = Controller(deployment(), make("escra", {}), pytest.fail)
    monkeypatch.setattr(controller, "_decide", stand_still)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: now_s)
        controller._flush()
    assert controller._rested_s - now_s == pytest.approx(rest_s)


@pytest.mark.parametrize(("kind", "taken"), [(socket.SOCK_STREAM, "TCP"), (socket.SOCK_DGRAM, "UDP")])
async def test_an_address_that_is_taken_is_named_with_the_cure(
    tmp_path: Path, kind: socket.SocketKind, taken: str
) -> None:
    async with cluster(tmp_path, deployment()) as here:
        with socket.socket(socket.AF_INET, kind) as other:
            other.bind(("127.0.0.1", 0))
            here.port = other.getsockname()[1]
            with pytest.raises(
                BackendError, match=rf"cannot be listened on \({taken}, .*choose another --listen"
            ):
                await here.controller()


async def test_an_agent_of_another_version_is_told_so(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment()) as here:
        controller, _ = await here.controller()
        async with speaker(here, "a0") as other:
            hello = Hello(version=service.PROTOCOL_VERSION - 1, name="a0", instance=1, host_cores=4.0)
            await other.call.write(Report(hello=hello))
            assert await other.call.code() is grpc.StatusCode.PERMISSION_DENIED
            assert await other.call.details() == f"agent 'a0' speaks version {hello.version}"
        assert not controller.books.agents


@pytest.mark.parametrize(
    ("said", "why"),
    [(Order(number=1), "it did not welcome us"), (b"\xff" * 3, "it sent something that is no order")],
)
async def test_an_agent_says_why_it_leaves_what_is_no_controller_of_its_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: Order | bytes, why: str
) -> None:
    async def attend(_requests: Any, context: Any) -> None:
        await context.read()
        await context.write(said)
        await context.read()

    async with cluster(tmp_path, deployment(agents=1)) as here:
        server, credentials = service.server(attend, lambda: certificates.controller_identity(tmp_path))
        here.port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        agent, running = here.agent("a0")
        await until(lambda: f"{why}; is it of the same version?" in caplog.text, "told")
        assert not agent.connected
        await running.kill()
        await server.stop(0)


async def test_agents_give_unused_memory_back_by_themselves(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1, each=1)) as here:
        controller, _ = await here.controller(make("escra", {"reclaim_interval_s": 0.1}))
        here.agent("a0")
        margin_bytes = controller.books.allocator.reclaim.margin_bytes
        await until(lambda: controller.books.memory.bounds()[0] == (10 << 20) + margin_bytes, "given back")
        (group,) = here.hosts["a0"].place.groups.values()
        assert group.limit_bytes == (10 << 20) + margin_bytes


async def test_a_reclaim_lowers_the_limits_of_its_own_application_only(tmp_path: Path) -> None:
    applications = Application("mail", 4.0, 4 << 30), Application("shop", 4.0, 4 << 30)
    placed = (Placed(name, "a0", int(name != "mail"), attach={"": name}) for name in ("mail", "calm", "full"))
    async with cluster(tmp_path, Deployment(applications, tuple(placed))) as here:
        controller, _ = await here.controller(make("escra", {"reclaim_interval_s": 3600.0}))
        here.agent("a0")
        groups = here.hosts["a0"].place.groups
        await until(lambda: "full" in groups and groups["full"].armed is not None, "limits are in force")
        trap, mail_bytes = groups["full"].trap(), groups["mail"].limit_bytes
        groups["full"].charged = 5 << 30
        trap.hold()
        await until(lambda: trap.surrendered > 0, "given up after a reclaim")
        margin_bytes = controller.books.allocator.reclaim.margin_bytes
        assert groups["calm"].limit_bytes == groups["calm"].charged + margin_bytes
        assert groups["mail"].limit_bytes == mail_bytes


async def test_watched_groups_join_when_they_appear_and_leave_when_they_vanish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watcher, "interval_s", 0.0)
    pods = tmp_path / "pods"
    for name in ("one", "first"):
        (pods / name).mkdir(parents=True)
    watches = Watch("a0", 0, "/none", "*"), Watch("a0", 0, "/pods", "o*")
    deployed = Deployment((Application("shop", 4.0, 4 << 30),), (), watches)
    async with cluster(tmp_path / "pki", deployed) as here:
        here.root = tmp_path
        controller, _ = await here.controller()
        here.agent("a0")
        members = controller.books.members
        await until(lambda: [each.name for each in members.values()] == ["2:one"], "found")
        (pods / "other").mkdir()
        await until(lambda: [each.name for each in members.values()] == ["2:one", "2:other"], "appeared")
        (pods / "one").rmdir()
        await until(lambda: [each.name for each in members.values()] == ["2:other"], "vanished")
        assert [*here.hosts["a0"].place.noted] == ["2:other"]
        assert not controller.refusals.counts


async def test_the_first_error_of_the_policy_ends_the_controller_and_no_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> None:
        errors.append(RuntimeError(f"error {len(errors)} of the policy"))
        raise errors[-1]

    errors: list[RuntimeError] = []
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, running = await here.controller()
        _, agent = here.agent("a0")
        await until(lambda: bool(controller.books.agents), "registered")
        monkeypatch.setattr(controller.books, "tick", fail)
        for _ in range(2):
            controller._guarded(lambda: controller.books.tick(0.0))
        await until(running.task.done, "ended")
        here._running.remove(running)
        with pytest.raises(RuntimeError, match="error 0 of the policy"):
            running.task.result()
        assert not agent.task.done()
