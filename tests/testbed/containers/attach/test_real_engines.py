"""Containers of a real Docker and a real Podman: found by name, limited, restarted, found again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.containers.attach import finding, names
from testbed.containers.attach.audit import Audit
from testbed.containers.attach.finding import Found
from testbed.containers.attach.limits import CPU_LIMIT, CPU_REQUEST, MEMORY_LIMIT, LimitedContainer
from testbed.containers.cgroup.attached import attach
from testbed.containers.cgroup.drivers import detect
from testbed.containers.ports import GroupGoneError
from testbed.containers.remote.hosting import Hosting
from testbed.containers.remote.origin import Watcher
from testbed.containers.remote.place import CgroupPlace
from tests.testbed.containers.attach.engines_here import Running

pytestmark = [pytest.mark.root, pytest.mark.slow]

MIB = 1 << 20
COMPOSE = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
SLEEP = ("/bin/sleep", "1000")


@pytest.fixture
def in_docker(docker: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Running]:
    """Docker with the containers web (NanoCpus), quota (CpuQuota) and free (no limits)."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{tmp_path}/none")
    docker.run("web", SLEEP, {"NanoCpus": 500_000_000, "Memory": 64 * MIB}, COMPOSE)
    docker.run("quota", SLEEP, {"CpuQuota": 80_000, "CpuPeriod": 100_000}, {})
    docker.run("free", SLEEP, {}, {})
    yield docker
    for name in ("web", "quota", "free"):
        docker.remove(name)


@pytest.fixture
def in_podman(podman: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Running:
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{podman.socket}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    return podman


def find(text: str) -> list[Found]:
    return finding.Finder(detect()).find(names.parse(text))


def limited(text: str) -> LimitedContainer:
    (found,) = find(text)
    return LimitedContainer(found, detect())


def record(docker: Running, name: str) -> dict[str, int]:
    (container,) = [each for each in docker.engine.containers() if each.name == name]
    return dict(docker.engine.state(container).record)


def test_docker_containers_are_found_by_name_id_and_compose_labels(in_docker: Running) -> None:
    (web,) = find("docker:web")
    assert web.name == "docker:web"
    assert web.container is not None
    assert find("compose:shop/web") == find(f"docker:{web.container.id[:12]}") == [web]
    group = attach(web.paths.get("") or web.paths, detect())
    assert (group.quota_cores, group.limit_bytes) == (0.5, 64 * MIB)
    group.restore()


def test_a_name_that_nobody_has_is_answered_with_close_ones(in_docker: Running) -> None:
    with pytest.raises(GroupGoneError, match=r"docker:wbe: no such container .* did you mean docker:web\?"):
        find("docker:wbe")
    with pytest.raises(GroupGoneError, match=r"did you mean compose:shop/web\?"):
        find("compose:shop/wep")


def test_a_container_that_restarts_is_found_again(in_docker: Running) -> None:
    before = limited("docker:web").counters().incarnation
    in_docker.ask("POST", "/containers/web/restart?t=0")
    assert limited("docker:web").counters().incarnation != before
    in_docker.ask("POST", "/containers/web/stop?t=0")
    with pytest.raises(GroupGoneError, match=r"docker:web: no such container runs here"):
        find("docker:web")
    in_docker.ask("POST", "/containers/web/start")


@pytest.mark.parametrize("name", ["web", "quota", "free"])
def test_limits_are_set_and_put_back_and_dockers_record_agrees(in_docker: Running, name: str) -> None:
    target = limited(f"docker:{name}")
    found, kept, recorded = target.read(), target.record(), record(in_docker, name)
    target.set(CPU_LIMIT, 0.3)
    target.set(CPU_REQUEST, 0.25)
    target.set(MEMORY_LIMIT, 32 * MIB)
    now = record(in_docker, name)
    assert limited(f"docker:{name}").read() == {CPU_REQUEST: 0.25, CPU_LIMIT: 0.3, MEMORY_LIMIT: 32 * MIB}
    assert now["CpuShares"] == 256
    assert now["NanoCpus"] == 300_000_000 if name == "web" else now["CpuQuota"] == 30_000
    # Docker could not remove it again.
    assert now["Memory"] == (32 * MIB if recorded["Memory"] else 0)
    again = limited(f"docker:{name}")
    for quantity, value in found.items():
        again.put_back(quantity, value, kept)
    assert limited(f"docker:{name}").read() == found
    back = record(in_docker, name)
    assert {key: back[key] for key in ("NanoCpus", "Memory", "MemorySwap")} == {
        key: recorded[key] for key in ("NanoCpus", "Memory", "MemorySwap")
    }


def test_a_limit_that_is_removed_is_put_back(in_docker: Running) -> None:
    target = limited("docker:web")
    found, kept = target.read(), target.record()
    target.set(CPU_LIMIT, math.inf)
    target.set(MEMORY_LIMIT, math.inf)
    assert target.read()[CPU_LIMIT] == target.read()[MEMORY_LIMIT] == math.inf
    for quantity in (CPU_LIMIT, MEMORY_LIMIT):
        target.put_back(quantity, found[quantity], kept)
    assert target.read() == found


def test_a_pod_is_its_containers_without_the_infra_one(in_podman: Running) -> None:
    assert [found.name for found in find("pod:shop")] == ["podman:shop-db", "podman:shop-web"]
    assert [found.name for found in find("podman:shop-web")] == ["podman:shop-web"]
    with pytest.raises(GroupGoneError, match=r"did you mean pod:shop\?"):
        find("pod:shopp")


def test_limits_of_a_pods_container_are_set_and_put_back(in_podman: Running) -> None:
    target = limited("podman:shop-web")
    found, kept = target.read(), target.record()
    assert (found[CPU_LIMIT], found[MEMORY_LIMIT]) == (0.5, 64 * MIB)
    target.set(CPU_LIMIT, 0.3)
    target.set(MEMORY_LIMIT, 48 * MIB)
    assert limited("podman:shop-web").read() == {**found, CPU_LIMIT: 0.3, MEMORY_LIMIT: 48 * MIB}
    for quantity, value in found.items():
        target.put_back(quantity, value, kept)
    assert limited("podman:shop-web").read() == found
    assert limited("podman:shop-web").record()["files"] == kept["files"]


def test_a_pods_container_that_restarts_is_found_again(in_podman: Running) -> None:
    before = limited("podman:shop-db").counters().incarnation
    in_podman.ask("POST", "/v4.0.0/libpod/containers/shop-db/restart?t=0")
    assert limited("podman:shop-db").counters().incarnation != before


def test_an_agent_attaches_by_name_again_after_a_restart_and_leaves_what_it_found(
    in_docker: Running, tmp_path: Path
) -> None:
    place = CgroupPlace("names", detect(), tmp_path / "agents")
    hosting = Hosting(place, None, Audit(tmp_path))
    watcher = Watcher(place.root, place.find)
    found = limited("docker:web").read()
    joined = hosting.converge([], watcher.begin([("docker:web", "*")]))
    assert [container.name for container in joined.containers] == ["1:docker:web"]
    hosting.containers["1:docker:web"].write_quota(0.2)
    assert limited("docker:web").read()[CPU_LIMIT] == 0.2
    in_docker.ask("POST", "/containers/web/restart?t=0")
    (origin,), vanished = watcher.look()
    assert vanished == {"1:docker:web"}
    hosting.gone(hosting.containers["1:docker:web"], "it was restarted")
    assert [container.name for container in hosting.appeared(origin).containers] == ["1:docker:web"]
    hosting.containers["1:docker:web"].write_quota(0.2)
    hosting.close()
    assert limited("docker:web").read() == found
    said = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["what"] for line in said] == ["attach", "detach"] * 2
    assert said[0]["cpu_limit_cores"] == 0.5
    assert said[-1]["why"] == "the agent ends"
