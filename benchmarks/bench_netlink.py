"""Time of reading the kernel's tables into arrays, and of installing rules. Without root there is no figure.

Dumps are compared with pyroute2's (of a tenth of the entries) and iproute2's. If the kernel has flower,
flower rules are compared with `tc -batch`; otherwise rules in a BPF map are compared with one call per rule.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import numpy as np
from pyroute2 import IPRoute

from benchmarks.figure import figure
from control.reconciler.model import Rules
from control.reconciler.ports import Add, Cause, Delete, Reason
from testbed.fabric.dumps import read_tables
from testbed.fabric.links import in_namespace
from testbed.fabric.netlink import Socket
from testbed.fabric.rules.bpf import BpfRules
from testbed.fabric.rules.flower import FlowerRules
from testbed.fabric.rules.ingress import WAY_OUT
from testbed.fabric.rules.port import Applier

ENTRIES, FEW = 100_000, 10_000
RULES = 5_000
REPEATS = 5
OWNER, LOCAL, DEVICE = 0xBE, (10 << 24) | 9, 10
_NAME = f"tb-bench{os.getpid()}-h0"
_LINES = f"""
link set lo up
link add index 3 name br0 type bridge
link set br0 up
link add index 4 name vx0 type vxlan id 100 dstport 4789 local 10.0.0.9 nolearning
link set vx0 master br0 up
link add index {DEVICE} name vf0 type veth peer index 110 name eth0
link set vf0 master br0 up
"""


def figures() -> Iterator[dict[str, object]]:
    """Yield the figures: medians of repeats, s."""
    if os.geteuid() != 0:
        print("netlink: needs root; no figures", file=sys.stderr)
        return
    with _host(), Socket() as netlink:
        _learn(0, FEW)
        few_s = _median_s(lambda: read_tables(netlink))
        pyroute2_s = _median_s(_by_pyroute2, 2)
        yield figure(
            f"dump_{FEW}_entries",
            few_s,
            "s",
            baseline="pyroute2's own dump, the same entries",
            baseline_value=pyroute2_s,
            ratio=pyroute2_s / few_s,
            target="≤ 0.018 s on a quiet machine",
        )
        _learn(FEW, ENTRIES)
        many_s = _median_s(lambda: read_tables(netlink))
        iproute2_s = _median_s(lambda: _run("bridge", "fdb"))
        yield figure(
            f"dump_{ENTRIES}_entries",
            many_s,
            "s",
            baseline="bridge fdb (iproute2), the same entries",
            baseline_value=iproute2_s,
            ratio=iproute2_s / many_s,
            target="≤ 0.39 s on a quiet machine",
            core_s=round(_core_s(lambda: read_tables(netlink)), 3),
        )
    yield _flower() if FlowerRules.works() else _bpf()


def _flower() -> dict[str, object]:
    with _host():
        rules = FlowerRules(OWNER, [DEVICE], LOCAL)
        ours_s = median(_install_s(rules) for _ in range(REPEATS))
        rules.close()
        batch = "\n".join(
            f"filter add dev vf0 ingress protocol all pref 7 flower dst_mac {_mac(rule)} "
            f"action tunnel_key set src_ip 10.0.0.9 dst_ip 10.0.0.{1 + rule % 4} id 100 dst_port 4789 nocsum "
            f"index {500 + rule % 4} pipe action mirred egress redirect dev {WAY_OUT}"
            for rule in range(RULES)
        )
        began = time.perf_counter()
        _run("tc", "-batch", "-", text=batch)
        tc_s = time.perf_counter() - began
    return figure(
        f"install_{RULES}_flower_rules",
        ours_s,
        "s",
        baseline="tc -batch, the same rules",
        baseline_value=tc_s,
        ratio=tc_s / ours_s,
        target="≥ 1 ×",
    )


def _bpf() -> dict[str, object]:
    with _host():
        rules = BpfRules(OWNER, [DEVICE], LOCAL)
        ours_s = median(_install_s(rules) for _ in range(REPEATS))
        keys, values = rules.tunnel.read()[0], np.zeros(RULES, rules.tunnel.read()[1].dtype)
        one_by_one_s = _median_s(
            lambda: [rules.tunnel.write(keys[at : at + 1], values[at : at + 1]) for at in range(RULES)]
        )
        rules.close()
    return figure(
        f"install_{RULES}_bpf_rules",
        ours_s,
        "s",
        baseline="one bpf(2) call for each rule",
        baseline_value=one_by_one_s,
        ratio=one_by_one_s / ours_s,
        target="≥ 211,000 rules/s on a quiet machine",
        rules_per_s=round(RULES / ours_s),
    )


def _install_s(applier: Applier) -> float:
    one, numbers = np.ones(RULES, np.int64), np.arange(RULES)
    reasons = np.full(RULES, Reason.NEW_ENTRY, np.uint8)
    cause = Cause(Reason.STARTED, 0.0)
    remote = (10 << 24) + 1 + numbers % 4
    rules = Rules(
        DEVICE * one, (2 << 40) + numbers, 100 * one, remote, 1000 + numbers % 4, 0 * one, OWNER * one
    )
    applier.carry_out(Delete(1, applier.read().rules, reasons, cause))
    began = time.perf_counter()
    refused = applier.carry_out(Add(1, rules, reasons, cause))
    took_s = time.perf_counter() - began
    assert refused is None, refused
    return took_s


@contextmanager
def _host() -> Iterator[None]:
    _run("ip", "netns", "add", _NAME)
    try:
        with in_namespace(_NAME):
            _run("ip", "-batch", "-", text=_LINES)
            yield
    finally:
        _run("ip", "netns", "delete", _NAME)


def _learn(first: int, last: int) -> None:
    lines = (f"fdb append {_mac(entry)} dev vx0 dst 10.0.0.{1 + entry % 4}" for entry in range(first, last))
    _run("bridge", "-batch", "-", text="\n".join(lines))


def _by_pyroute2() -> None:
    with IPRoute() as ip:
        list(ip.fdb("dump"))


def _mac(number: int) -> str:
    return ":".join(f"{byte:02x}" for byte in ((2 << 40) + number).to_bytes(6, "big"))


def _run(*argv: str, text: str | None = None) -> None:
    subprocess.run(argv, input=text, text=True, check=True, stdout=subprocess.DEVNULL)


def _median_s(action: Callable[[], object], repeats: int = REPEATS) -> float:
    return median(_seconds(action, time.perf_counter) for _ in range(repeats))


def _core_s(action: Callable[[], object]) -> float:
    return median(_seconds(action, time.process_time) for _ in range(REPEATS))


def _seconds(action: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    action()
    return clock() - began
