"""Flower rules and `tc`: tc shows what we install, and we read what tc installs."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from control.reconciler.model import Rules
from control.reconciler.ports import Add, Cause, Delete, Reason, Replace, RuleChange
from testbed.fabric.netlink import Socket
from testbed.fabric.rules.flower import FlowerRules
from testbed.fabric.rules.flower_attributes import Tunnelling, filter_message
from testbed.fabric.rules.ingress import WAY_OUT, filters
from tests.testbed.fabric.rules.decoded import read
from tests.testbed.fabric.small_host import REPRESENTOR, VNI, small_host

pytestmark = [pytest.mark.root, pytest.mark.slow]

OWNER, LOCAL = 0x7477_696E_6265_6400, (10 << 24) | 9
FIRST_REMOTE = (10 << 24) | 1


@pytest.fixture(scope="module")
def works() -> None:
    if os.geteuid() != 0:
        pytest.skip("flower rules need root")
    if not FlowerRules.works():
        pytest.skip("this kernel has no cls_flower or no act_tunnel_key; see make test-vm")


@pytest.fixture
def flower(works: None) -> Iterator[FlowerRules]:
    with small_host():
        rules = FlowerRules(OWNER, [REPRESENTOR], LOCAL)
        yield rules
        rules.close()


def some(count: int, *, remotes: int = 1) -> Rules:
    one, number = np.ones(count, np.int64), np.arange(count)
    remote = number % remotes
    return Rules(
        device=REPRESENTOR * one,
        mac=(2 << 40) + number,
        vni=VNI * one,
        remote=FIRST_REMOTE + remote,
        action=7000 + remote,
        handle=0 * one,
        cookie=OWNER * one,
    )


def change(kind: type[RuleChange], rules: Rules) -> RuleChange:
    return kind(1, rules, np.ones(len(rules.mac), np.uint8), Cause(Reason.STARTED, 0.0))


def tc(*words: str):
    done = subprocess.run(["tc", "-json", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "[]")


def shown() -> list[dict]:
    rows = tc("filter", "show", "dev", "vf0", "ingress")
    return sorted((row["options"] for row in rows if "options" in row), key=lambda rule: rule["handle"])


def test_tc_shows_what_was_installed(flower: FlowerRules) -> None:
    assert flower.carry_out(change(Add, some(3, remotes=2))) is None
    for number, rule in enumerate(shown()):
        tunnel, redirect = rule["actions"]
        assert rule["keys"] == {"dst_mac": f"02:00:00:00:00:0{number}"}
        assert rule["not_in_hw"]
        wanted = {
            "kind": "tunnel_key",
            "mode": "set",
            "src_ip": "10.0.0.9",
            "dst_ip": f"10.0.0.{1 + number % 2}",
            "key_id": VNI,
            "dst_port": 4789,
            "flag": "nocsum",
            "index": 7000 + number % 2,
            "bind": 2 - number % 2,
            "cookie": f"{OWNER:x}",
        }
        assert {name: tunnel[name] for name in wanted} == wanted
        assert (redirect["to_dev"], redirect["direction"], redirect["bind"]) == (WAY_OUT, "egress", 3)
    assert flower.measures() == {"in_hw": 0, "skip_sw": 0}


def test_what_tc_installed_is_read(flower: FlowerRules) -> None:
    words = (
        "filter add dev vf0 ingress protocol all pref 9 handle 5 flower dst_mac 02:00:00:00:ab:cd "
        # `pipe` behind a cookie would be an action of its own.
        "action tunnel_key set src_ip 10.0.0.9 dst_ip 10.0.0.77 id 300 dst_port 4789 nocsum pipe index 44 "
        f"cookie a1 action mirred egress redirect dev {WAY_OUT} index 55"
    )
    subprocess.run(["tc", *words.split()], check=True)
    other = "tc filter add dev vf0 ingress pref 10 protocol ip flower ip_proto tcp action pass"
    subprocess.run(other.split(), check=True)

    rules = flower.read().rules
    assert [column.tolist() for column in (rules.device, rules.mac, rules.vni)] == [
        [REPRESENTOR],
        [0x02000000ABCD],
        [300],
    ]
    assert (rules.remote.tolist(), rules.action.tolist()) == ([(10 << 24) | 77], [44])
    assert (rules.handle.tolist(), (rules.cookie != OWNER).all()) == ([(9 << 32) | 5], True)

    with Socket() as netlink:
        dump = filters(netlink, REPRESENTOR)
    decoded = []
    for start in dump.starts.tolist():
        message = filter_message(dump.words[start : start + (int(dump.words[start]) >> 2)].tobytes())
        message.decode()
        if message["handle"] == 5:
            decoded.append(read(message))
    (one,) = decoded
    assert one == Tunnelling(
        "02:00:00:00:ab:cd", 300, "10.0.0.9", "10.0.0.77", 4789, one.way_out, 44, 55, b"\xa1"
    )


def test_a_replacement_keeps_its_handle_and_a_second_rule_is_refused(flower: FlowerRules) -> None:
    flower.carry_out(change(Add, some(3)))
    before = flower.read().rules
    moved = some(2)
    moved = replace(moved, remote=moved.remote + 8, action=moved.action + 8, handle=before.handle[:2])

    assert flower.carry_out(change(Replace, moved)) is None
    after = flower.read().rules
    assert (after.handle == before.handle).all()
    assert (after.remote - FIRST_REMOTE).tolist() == [8, 8, 0]

    refused = flower.carry_out(change(Add, some(4)))
    assert refused is not None
    assert (refused.rows.tolist(), refused.full) == ([0, 1, 2], False)
    assert refused.why.startswith("EEXIST")


def test_the_last_rule_takes_its_action_away(flower: FlowerRules) -> None:
    flower.carry_out(change(Add, some(600, remotes=2)))
    rules = flower.read().rules
    assert len(rules.mac) == 600

    second = rules.action == 7001
    assert flower.carry_out(change(Delete, rules.take(second))) is None
    # A rule that is already gone is no failure, and neither is a rule that is known by its address only.
    assert flower.carry_out(change(Delete, rules.take(second))) is None
    assert flower.carry_out(change(Delete, some(1))) is None

    left = tc("actions", "list", "action", "tunnel_key")
    assert {action["index"] for part in left for action in part.get("actions", [])} == {7000}
    assert len(flower.read().rules.mac) == 299
