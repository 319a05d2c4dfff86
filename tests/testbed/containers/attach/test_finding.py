"""Names and what they mean: forms, hostile ones, units of systemd, and an engine that answers nonsense."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.containers.attach import finding
from testbed.containers.attach.engines import Container, Engine, State
from testbed.containers.attach.names import parse
from testbed.containers.cgroup.drivers import V1
from testbed.containers.ports import GroupGoneError
from tests.testbed.containers.fake_cgroups import FakeTree
from twinbed import BackendError, ScenarioError

ID = "ab" * 32


@pytest.fixture
def driver(tmp_path: Path) -> V1:
    return FakeTree(tmp_path).driver_v1("shop", limit=1 << 26)


class Many(Engine):
    """An engine with many containers, all of process 7, that counts what it is asked. Some may be gone."""

    asked: ClassVar[Counter[str]] = Counter()
    gone: ClassVar[set[str]] = set()

    def containers(self) -> list[Container]:
        self.asked["list"] += 1
        return [
            Container("docker", ID, f"c{number}") for number in range(10_000) if f"c{number}" not in self.gone
        ]

    def state(self, container: Container) -> State:
        self.asked["state"] += 1
        return State(0 if container.name in self.gone else 7, "monday", 0, {}, container.name)


@pytest.mark.parametrize("gone", [0, 5_000])
def test_ten_thousand_containers_take_one_request_each_and_few_lists(
    driver: V1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    many, now_s = Many("docker", tmp_path / "s"), [0.0]
    monkeypatch.setattr(finding, "engine", lambda _kind: many)
    monkeypatch.setattr(finding, "present", lambda: [many])
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    finder = finding.Finder(driver, process(tmp_path / "p", f"/docker/{ID}"))
    found = [own.name for own in finder.everyone()]
    assert len(found) == 10_000
    monkeypatch.setattr(Many, "gone", {f"c{number}" for number in range(gone)})
    monkeypatch.setattr(Many, "asked", Counter())
    now_s[0] += finding.FRESH_S
    missed = 0
    for name in found:
        try:
            finder.again(name)
        except GroupGoneError:
            missed += 1
    assert missed == gone
    assert many.asked["list"] <= 1
    assert many.asked["state"] <= 10_001


def test_a_name_that_another_container_has_by_now_is_found_again(
    driver: V1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker rename web old`, then `docker run --name web`, as compose does when it recreates one."""
    names, now_s = {"1" * 64: "web"}, [0.0]

    class Renaming(Engine):
        def containers(self) -> list[Container]:
            return [Container("docker", id_, name) for id_, name in names.items()]

        def state(self, container: Container) -> State:
            return State(int(container.id[0]), "monday", 0, {}, names[container.id])

    for id_ in ("1" * 64, "2" * 64):
        process(tmp_path / "p", f"/docker/{id_}", id_[0])
    monkeypatch.setattr(finding, "engine", lambda _kind: Renaming("docker", tmp_path / "s"))
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    finder = finding.Finder(driver, tmp_path / "p")
    assert finder.again("docker:web").paths["cpu"] == f"/docker/{'1' * 64}"
    names |= {"1" * 64: "old", "2" * 64: "web"}
    now_s[0] += finding.FRESH_S
    assert finder.again("docker:web").paths["cpu"] == f"/docker/{'2' * 64}"


BAD = """
web|docker:|docker:a b|docker:../x|docker:a/b|docker:a?b|docker:%2e%2e|docker:a..b|compose:shop|compose:a/b/c
pod:-x|systemd:shop|systemd:-h.service|systemd:a b.service|lxc:a|/|//|/a/../b
"""


@pytest.mark.parametrize(
    "text", ["", "/a\n", "docker:" + "x" * 300, *BAD.strip().replace("\n", "|").split("|")]
)
def test_a_name_that_cannot_be_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        parse(text)
    assert str(raised.value).isprintable()


@given(st.text())
def test_what_is_accepted_can_stand_in_a_url_and_a_command_line(text: str) -> None:
    for kind in ("docker", "podman", "compose", "pod", "systemd"):
        try:
            name = parse(f"{kind}:{text}")
        except ScenarioError:
            continue
        assert name.name.isascii()
        assert not set(name.name) & set(" ?#%&\"'$`\n\0")
        assert not name.name.startswith("-")


class Fake(Engine):
    """An engine whose container has process 7."""

    def state(self, container: Container) -> State:
        return State(7, "monday", 0, {}, "web")


def process(folder: Path, path: str, pid: str = "7") -> Path:
    (folder / pid).mkdir(parents=True)
    lines = [f"3:cpu,cpuacct:{path}", f"4:memory:{path}", "0::/"]
    (folder / pid / "cgroup").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(
    "path", [f"/docker/{ID}", f"/docker/{ID}/init.scope", f"/x/docker-{ID}.scope/container"]
)
def test_the_path_ends_at_the_part_with_the_containers_id(driver: V1, tmp_path: Path, path: str) -> None:
    engine, container = Fake("docker", tmp_path / "s"), Container("docker", ID, "web")
    found = finding.located(engine, container, driver, process(tmp_path / "p", path))
    assert ID in found.paths["cpu"].rsplit("/", 1)[-1]
    assert path.startswith(found.paths["cpu"])


def test_a_process_id_that_is_anothers_by_now_is_nobodys_cgroup(driver: V1, tmp_path: Path) -> None:
    engine, container = Fake("docker", tmp_path / "s"), Container("docker", ID, "web")
    with pytest.raises(GroupGoneError, match="process 7 is in no cgroup of its id"):
        finding.located(engine, container, driver, process(tmp_path / "p", "/system.slice/sshd.service"))
    with pytest.raises(GroupGoneError, match="process 7 is not here"):
        finding.located(engine, container, driver, tmp_path / "none")


def test_a_process_that_ends_while_its_cgroup_is_read_is_gone(
    driver: V1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(_: Path) -> str:
        raise ProcessLookupError(3, "No such process")

    engine, container = Fake("docker", tmp_path / "s"), Container("docker", ID, "web")
    monkeypatch.setattr(Path, "read_text", ended)
    with pytest.raises(GroupGoneError, match="process 7 is not here"):
        finding.located(engine, container, driver, tmp_path)


@contextmanager
def answering(path: Path, answer: bytes) -> Iterator[Engine]:
    """A socket that answers each request with these bytes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Engine("docker", path)
    finally:
        thread.join()
        listener.close()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "is not a list of containers"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[1,2]", "is not a container"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<h>", "is not JSON"),
        (
            b'HTTP/1.1 500 No\r\nContent-Length: 22\r\n\r\n{"message": "a\\u001b"}',
            "refuses (500, a\N{REPLACEMENT CHARACTER})",
        ),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not answer as docker does"),
        (b"", "does not answer as docker does"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[", "is not JSON"),
    ],
)
def test_an_engine_that_answers_nonsense_is_one_line(tmp_path: Path, body: bytes, said: str) -> None:
    with answering(tmp_path / "s", body) as engine, pytest.raises(BackendError) as raised:
        engine.containers()
    assert said in str(raised.value)
    assert str(raised.value).isprintable()


def test_only_unix_sockets_are_asked(monkeypatch: pytest.MonkeyPatch, driver: V1) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(ScenarioError, match="expected unix:///PATH, on this machine"):
        finding.Finder(driver).find(parse("docker:web"))


SYSTEMCTL = """\
#!/bin/sh
case "$1 $4" in
"show shop.service") echo ControlGroup=/shop; echo NRestarts=3 ;;
"show "*) echo ControlGroup=; echo NRestarts=0 ;;
*) echo "shop.service loaded active running The shop" ;;
esac
"""


def test_a_unit_of_systemd_is_its_control_group(
    driver: V1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    (found,) = finding.Finder(driver).find(parse("systemd:shop.service"))
    assert (found.name, found.paths, found.restarts) == ("systemd:shop.service", {"": "/shop"}, 3)
    with pytest.raises(GroupGoneError, match=r"did you mean systemd:shop\.service\?"):
        finding.Finder(driver).find(parse("systemd:shopp.service"))
