"""Deployments: addresses of their own; containers that answer, come back where they were, hold memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop

from control.services import Call, Draw, Handler, Memory, Service, ServiceApp
from testbed.containers.services.deploy import deploy
from testbed.containers.services.http1 import Peer, request
from tests.patience import PATIENCE_S
from tests.testbed.containers.running_services import Running, running
from tests.testbed.containers.waiting import until
from twinbed import BackendError

MIB = 2**20

SHOP = ServiceApp(
    "shop",
    {
        "front": Service(
            {"page": Handler(0.0002, stages=((Call("stock.list"), Call("cart.get")), (Call("cart.get"),)))}
        ),
        "stock": Service({"list": Handler(0.0002, draw=Draw.EXPONENTIAL, stages=((Call("cart.get"),),))}),
        "cart": Service(
            {"get": Handler(0.0001, draw=Draw.LOGNORMAL, cv=0.5)},
            memory=Memory(48 * MIB, MIB, 8 * MIB, MIB),
        ),
    },
    {"page": "front.page", "cart": "cart.get"},
)


def ask(url: str) -> int:
    """The status of one request."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    host, port, path = parts.hostname, parts.port, parts.path

    async def scene() -> int:
        peer = Peer(host, port)
        status = await asyncio.wait_for(peer.ask(request(host, path)), 60)
        peer.close()
        await asyncio.sleep(0.001)
        return status

    return uvloop.run(scene())


def anonymous_bytes(services: Running, name: str) -> int:
    status = Path(f"/proc/{services.processes[name].pid}/status").read_text()
    match = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert match is not None
    return int(match[1]) * 1024


def test_deployments_side_by_side_have_addresses_of_their_own(tmp_path: Path) -> None:
    with deploy(SHOP, tmp_path) as one, deploy(SHOP, tmp_path) as other:
        assert len(one.containers) == 3
        assert not set(sum(one.entries, ())) & set(sum(other.entries, ()))


def test_entries_are_the_urls_of_all_replicas(tmp_path: Path) -> None:
    app = ServiceApp("app", {"a": Service({"x": Handler(0.0)}, replicas=2)}, {"ask": "a.x"})
    with deploy(app, tmp_path) as deployment:
        (urls,) = deployment.entries
        assert [urlsplit(url).port for url in urls] == [9001, 9002]
        assert {urlsplit(url).path for url in urls} == {"/x"}
        assert [container.spec.name for container in deployment.containers] == ["a-1", "a-2"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot be written"):
        deploy(SHOP, tmp_path / "missing")


def test_nothing_is_ready_before_it_runs(tmp_path: Path) -> None:
    with deploy(SHOP, tmp_path) as deployment:
        assert not any(container.ready() for container in deployment.containers)


def test_a_graph_answers_and_a_killed_container_comes_back_where_it_was(tmp_path: Path) -> None:
    with running(SHOP, tmp_path) as services:
        page, cart = (urls[0] for urls in services.deployment.entries)
        assert ask(page) == HTTPStatus.OK
        services.kill("cart")
        assert ask(page) == HTTPStatus.INTERNAL_SERVER_ERROR
        with pytest.raises(ConnectionRefusedError):
            ask(cart)
        services.start("cart")
        services.wait_ready("cart")
        assert ask(page) == HTTPStatus.OK
        assert ask(cart) == HTTPStatus.OK


@pytest.mark.slow
def test_a_container_holds_its_base_and_its_cache_grows_to_its_bound(tmp_path: Path) -> None:
    with running(SHOP, tmp_path) as services:
        cart = services.deployment.entries[1][0]
        began = anonymous_bytes(services, "cart")
        assert 47 * MIB <= began <= 52 * MIB
        for _ in range(12):
            assert ask(cart) == HTTPStatus.OK
        # The cache's bound, and what a visit held until it is returned to the kernel.
        until(lambda: abs(anonymous_bytes(services, "cart") - began - 8 * MIB) < MIB, "cache of 8 MiB")


def _served(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testbed.containers.services.serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_what_is_wrong_with_a_configuration_is_said_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"app": {"name": "x"}, "addresses": {}, "seed": 0}))
    ended = _served(os.fspath(path), "front")
    assert ended.returncode == 2
    assert ended.stderr == f"{path}: services: missing\n"


def test_an_address_that_is_taken_is_said_in_one_line(tmp_path: Path) -> None:
    with running(SHOP, tmp_path) as services:
        ended = _served(*services.deployment.containers[0].spec.command[-2:])
    assert ended.returncode == 2
    assert re.fullmatch(r"127\.\S+:9001: cannot be listened at \(.*\); end what uses it\n", ended.stderr)
