"""`twinbed apply` on containers of a real Docker and a real Podman pod."""

from __future__ import annotations

import functools
import json
import threading
import time
from pathlib import Path

import pytest

from lab.cli.main import call
from lab.containers.advise import model
from lab.containers.advise.model import Setting
from lab.containers.apply import carrying
from testbed.containers.attach import finding, names
from testbed.containers.attach.limits import LimitedContainer
from testbed.containers.cgroup.drivers import detect
from tests.lab.containers.apply.apply_world import MIB, advice, row
from tests.patience import PATIENCE_S
from tests.testbed.containers.attach.conftest import docker, podman  # noqa: F401 - fixtures

pytestmark = [pytest.mark.root, pytest.mark.slow]

WEB = Setting(cpu_limit_cores=0.1, memory_limit_bytes=32 * MIB)
BUSY = ("/bin/sh", "-c", "while true; do :; done")


@pytest.fixture
def shop(
    docker,  # noqa: F811
    podman,  # noqa: F811
    monkeypatch,
    tmp_path,
):
    """Two replicas of compose's shop/web in Docker, and Podman's pod shop."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    monkeypatch.setenv("CONTAINER_HOST", f"unix://{podman.socket}")
    labels = {"com.docker.compose.project": "store", "com.docker.compose.service": "web"}
    for number in (1, 2):
        docker.run(f"store-web-{number}", BUSY, {"NanoCpus": 500_000_000, "Memory": 64 * MIB}, labels)
    model.write(
        advice(row("store/web", advised=WEB), row("x", workload="shop", container="web", advised=WEB)),
        tmp_path / "advice.json",
    )
    yield docker
    for number in (1, 2):
        docker.remove(f"store-web-{number}")


def read(name: str) -> tuple[float, float]:
    (found,) = finding.Finder(detect()).find(names.parse(name))
    now = LimitedContainer(found, detect()).read()
    return now["cpu_limit_cores"], now["memory_limit_bytes"]


def twinbed(folder: Path, *arguments: str) -> int:
    state = ["--state", str(folder / "state")]
    return call(
        ["apply", *([] if "--undo" in arguments else [str(folder / "advice.json")]), *state, *arguments]
    )


ALL = ("docker:store-web-1", "docker:store-web-2", "podman:shop-web")
OLD, NEW = (0.5, 64 * MIB), (0.1, 32 * MIB)


def test_rows_find_their_containers_and_an_undo_takes_everything_back(shop, tmp_path, capsys):
    assert twinbed(tmp_path, "--format", "json") == 0
    shown = json.loads(capsys.readouterr().out)["rows"]
    assert sorted({each["container"] for each in shown}) == sorted(ALL)
    assert [read(name) for name in ALL] == [OLD] * 3
    assert twinbed(tmp_path, "--yes") == 0
    assert [read(name) for name in ALL] == [NEW] * 3
    # Docker's own record agrees: a restart keeps the limits.
    shop.ask("POST", "/containers/store-web-1/restart?t=0")
    assert read(ALL[0]) == NEW
    assert twinbed(tmp_path, "--undo") == 0
    assert [read(name) for name in ALL] == [OLD] * 3


def test_a_throttled_canary_takes_everything_back(shop, tmp_path, capsys):
    options = ("--yes", "--canary", "30%", "--watch", "30s", "--abort-if", "throttled > 5%")
    assert twinbed(tmp_path, *options) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Taken back, everything is as it was: docker:store-web-1: throttled in" in said
    assert [read(name) for name in ALL] == [OLD] * 3
    audit = (tmp_path / "state" / "audit.jsonl").read_text().splitlines()
    touched = {json.loads(line).get("container") for line in audit if json.loads(line)["what"] == "set"}
    assert touched == {"docker:store-web-1"}


class Disturbed:
    """Time during a watch, which is over as soon as somebody was disturbed, however long that took."""

    def __init__(self) -> None:
        self.done = threading.Event()

    def monotonic(self) -> float:
        return time.monotonic() + (3600 if self.done.is_set() else 0)

    def sleep(self, seconds: float) -> None:
        self.done.wait(seconds)


@pytest.mark.parametrize("what", ["restart", "stop"])
def test_a_container_that_restarts_or_vanishes_in_the_watch(shop, tmp_path, capsys, monkeypatch, what):
    clock = Disturbed()
    monkeypatch.setattr(carrying, "Applier", functools.partial(carrying.Applier, clock=clock))

    def disturb() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while any(read(name) != NEW for name in ALL) and time.monotonic() < deadline:
            time.sleep(0.05)
        shop.ask("POST", f"/containers/store-web-2/{what}?t=0")
        clock.done.set()

    thread = threading.Thread(target=disturb)
    thread.start()
    code = twinbed(tmp_path, "--yes", "--watch", "10m", "--abort-if", "restarts > 1")
    thread.join()
    said = capsys.readouterr().out
    if what == "restart":
        assert code == 0, said
        assert read(ALL[1]) == NEW
    else:
        assert code == 1
        assert "docker:store-web-2 is gone" in said
        assert read(ALL[0]) == OLD
