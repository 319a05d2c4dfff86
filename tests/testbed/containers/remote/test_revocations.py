"""Certificates that are revoked or of another authority: the lists, and what becomes of an agent."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from testbed.containers.remote import certificates, revocations
from testbed.containers.remote.revocations import Revocations
from tests.testbed.containers.remote.cluster import Cluster, cluster, deployment, until
from twinbed import BackendError, ScenarioError


def enrolled(pki: Path, name: str) -> certificates.Identity:
    identity = certificates.enroll(pki, name)
    revocations.note_issued(pki, name, certificates.serial_of(identity.certificate))
    return identity


def test_an_agents_name_revokes_all_certificates_it_had_and_none_it_gets_later(tmp_path: Path) -> None:
    certificates.init(tmp_path)
    before = [certificates.serial_of(enrolled(tmp_path, "a").certificate) for _ in range(2)]
    enrolled(tmp_path, "b")
    revoked = Revocations(tmp_path)
    assert revoked() == frozenset()
    revocations.revoke(tmp_path, "a")
    enrolled(tmp_path, "a")
    assert revoked() == frozenset(before)


def test_a_serial_number_revokes_one_certificate_even_if_nobody_noted_its_issue(tmp_path: Path) -> None:
    certificates.init(tmp_path)
    serial = certificates.serial_of(certificates.enroll(tmp_path, "a").certificate)
    revocations.revoke(tmp_path, f"{serial:X}")
    assert Revocations(tmp_path)() == {serial}


@pytest.mark.parametrize("which", ["nobody", "beef", "", "-1", "a\nb"])
def test_an_agent_without_a_certificate_cannot_be_revoked(tmp_path: Path, which: str) -> None:
    certificates.init(tmp_path)
    with pytest.raises(ScenarioError, match="no agent with a certificate"):
        revocations.revoke(tmp_path, which)
    assert not (tmp_path / "revoked").exists()


def test_a_list_that_another_process_writes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.init(tmp_path)
    enrolled(tmp_path, "a")
    monkeypatch.setattr(revocations.ownership, "take", lambda _: None)
    with pytest.raises(BackendError, match=r"lists\.lock: another process writes the lists; try again"):
        revocations.revoke(tmp_path, "a")
    assert not (tmp_path / "revoked").exists()
    monkeypatch.undo()
    with pytest.raises(
        BackendError, match=r"nowhere/lists\.lock: No such file .*; run it as the folder's owner"
    ):
        revocations.note_issued(tmp_path / "nowhere", "a", 1 << 100)


def test_a_damaged_list_is_refused_at_the_start_and_takes_nothing_back_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates.init(tmp_path)
    enrolled(tmp_path, "a")
    serials = revocations.revoke(tmp_path, "a")
    revoked = Revocations(tmp_path)
    certificates.write_private(tmp_path / "revoked", b"\xff")
    assert revoked() == serials
    certificates.write_private(tmp_path / "revoked", b"not a serial\n")
    assert revoked() == serials
    assert "line 1 is no serial number" in caplog.text
    with pytest.raises(BackendError, match="line 1 is no serial number and name; restore it"):
        Revocations(tmp_path)


async def connected(here: Cluster, pki: Path) -> None:
    # No part of Ω/4 = 1 core is unused and no container is throttled, so no other limit is on its way.
    for host in here.hosts.values():
        host.use_cores = {f"{host.name}-c{index}": 1.0 for index in range(2)}
    controller, _ = await here.controller()
    first, _ = here.agent("a0", enrolled(pki, "a0"))
    second, _ = here.agent("a1", enrolled(pki, "a1"))
    await until(lambda: len(controller.books.members) == 4, "all joined")
    await until(lambda: set(here.quotas().values()) == {1.0}, "limits")
    revocations.revoke(pki, "a0")
    controller.reload()
    await until(lambda: not first.connected, "its call was ended")
    await until(lambda: controller.refusals.counts["registration"] > 0, "refused when it came again")
    await until(lambda: second.connected, "the other one stays or, on a machine that stood still, is back")
    assert set(here.quotas().values()) == {1.0}
    assert len(controller.books.members) == 4
    first.rotate(enrolled(pki, "a0"))
    await until(lambda: first.connected, "back with a new certificate")


async def test_a_revoked_agent_is_told_so_and_its_containers_keep_their_limits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with cluster(tmp_path, deployment()) as here:
        await connected(here, tmp_path)
    said = [record.getMessage() for record in caplog.records]
    assert any("permission_denied, the agent's certificate was revoked; limits stay" in line for line in said)
    assert any("agent 'a0' shows a certificate that was revoked (from 127.0.0.1)" in line for line in said)
    assert any("agent a0 is lost (the agent's certificate was revoked)" in line for line in said)
    assert not any("agent a1 is lost (the agent's" in line for line in said)
    assert sum("reloaded: this controller's certificate is good until" in line for line in said) == 1


async def test_a_revocation_is_taken_up_without_a_signal(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        await here.controller()
        agent, _ = here.agent("a0", enrolled(tmp_path, "a0"))
        await until(lambda: agent.connected, "registered")
        revocations.revoke(tmp_path, "a0")
        await until(lambda: not agent.connected, "its call was ended")


async def test_an_agent_with_a_new_certificate_connects_anew_and_its_containers_stay(tmp_path: Path) -> None:
    async with cluster(tmp_path, deployment(agents=1)) as here:
        controller, _ = await here.controller()
        agent, _ = here.agent("a0", enrolled(tmp_path, "a0"))
        await until(lambda: len(controller.books.members) == 2, "joined")
        ids, (session,) = set(controller.books.members), controller.by_session
        renewed = enrolled(tmp_path, "a0")
        agent.rotate(renewed)
        await until(lambda: bool(controller.by_session.keys() - {session}), "another call")
        revocations.revoke(tmp_path, f"{certificates.serial_of(renewed.certificate):x}")
        await until(lambda: not agent.connected, "it showed the new certificate")
        assert set(controller.books.members) == ids
        assert not any(group.removed for group in here.hosts["a0"].place.groups.values())


async def test_a_controller_of_another_authority_is_named_with_the_cure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates.init(tmp_path / "other")
    certificates.init(tmp_path / "ours")
    async with cluster(tmp_path / "ours", deployment(agents=1)) as here:
        await here.controller()
        here.agent("a0", certificates.enroll(tmp_path / "other", "a0"))
        cure = "its certificate is not valid here: enroll this agent at this controller"
        await until(lambda: any(cure in said for said in caplog.messages), "said")
