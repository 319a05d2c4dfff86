"""Find out what this machine can do for the fabric, and the command for each missing feature.

For: `twinbed testbed doctor`, and refusing to begin what could not be finished. Not for: mending anything.
Source: our design. Trials are made in a namespace of our own, which is removed again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass

from testbed.containers.doctor import Finding, program, succeeds, virtual_machine
from testbed.fabric import frr, leftovers
from testbed.fabric.links import make_namespace, run_in
from testbed.fabric.model import Daemon
from testbed.fabric.ownership import namespace
from twinbed import BackendError

_ROOT = "run it as root: sudo twinbed testbed doctor"
_KERNEL = "boot Debian's kernel: sudo apt install linux-image-amd64"
_INSTALL = "sudo make system"

_NEEDED = {
    "ip": "iproute2",
    "bridge": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "mnexec": "mininet",
    "nsenter": "util-linux",
    "nice": "coreutils",
    "chrt": "util-linux",
    "vtysh": "frr",
}
"""Program → Debian's package."""

_WELCOME = (
    ("iperf3", "iperf3", "throughput through faults"),
    ("ib_send_lat", "perftest", "soft-RoCE in the VM"),
)


@dataclass(frozen=True, slots=True)
class _Trial:
    """A feature that a kernel may lack.

    feature: its name. meaning: its use. commands: commands that must all succeed in a new namespace. needed:
    whether no fabric works without it. cure: command that provides it.
    """

    feature: str
    meaning: str
    commands: tuple[str, ...]
    needed: bool
    cure: str = _KERNEL


_NETEM = _Trial(
    "link delay",
    "impairments of links by delay and corrupt; without it the VM has them",
    ("ip link add veth0 type veth peer name veth1", "tc qdisc add dev veth0 root netem delay 1ms"),
    needed=False,
    cure="make test-vm",
)

_TRIALS = (
    _Trial(
        "overlay",
        "cables, bridges and tunnels of the fabric",
        (
            "ip link add veth0 type veth peer name veth1",
            "ip link add bridge0 type bridge",
            "ip link add vxlan0 type vxlan id 1 local 127.0.0.1 dstport 4789 nolearning",
            "ip link set vxlan0 master bridge0",
            "ip link set vxlan0 type bridge_slave neigh_suppress on learning off",
        ),
        needed=True,
    ),
    _Trial(
        "silent faults",
        "ports that drop without a signal",
        (
            "ip link add veth0 type veth peer name veth1",
            "nft add table netdev t",
            "nft add chain netdev t c { type filter hook ingress device veth0 priority 0; }",
            "nft add chain netdev t d { type filter hook egress device veth0 priority 0; }",
        ),
        needed=True,
    ),
    _Trial(
        "shaped links",
        "uplinks with a rate (--rate)",
        (
            "ip link add veth0 type veth peer name veth1",
            "tc qdisc add dev veth0 root handle 1: htb default 2",
            "tc filter add dev veth0 parent 1: protocol ip u32 match ip tos 0xc0 0xff flowid 1:1",
        ),
        needed=False,
    ),
    _Trial(
        "tc flower",
        "tunnel rules in the form that NICs take over; without it a BPF program or the VM has them",
        (
            "ip link add veth0 type veth peer name veth1",
            "ip link add vxlan0 type vxlan dstport 4790 external",
            "tc qdisc add dev veth0 clsact",
            "tc filter add dev veth0 ingress protocol all flower dst_mac 02:00:00:00:00:01 "
            "action tunnel_key set src_ip 127.0.0.1 dst_ip 127.0.0.2 id 1 dst_port 4790 "
            "action mirred egress redirect dev vxlan0",
        ),
        needed=False,
        cure="make test-vm",
    ),
    _NETEM,
)


def require() -> None:
    """Raise BackendError with the cure if a fabric cannot be made here. Nothing is tried."""
    if os.geteuid() != 0:
        raise BackendError("a fabric needs root: run the command with sudo")
    missing = _missing_packages()
    if missing:
        raise BackendError(f"a fabric needs {', '.join(missing)}, not installed here; {_INSTALL}")


def has_netem() -> bool:
    """Return whether this kernel can delay and corrupt packets, by trying it. Needs root."""
    return _try(_NETEM).status == "ok"


def examine() -> tuple[Finding, ...]:
    """Return a finding for everything that a fabric uses, the needed ones first. Runs without root, too."""
    findings = [_packages(), _mininet(), *map(_try, _TRIALS), _real_time()]
    findings += [program(*wanted) for wanted in _WELCOME]
    findings.append(virtual_machine("features that this kernel lacks: tc flower, soft-RoCE"))
    return tuple(sorted(findings, key=lambda finding: not finding.needed))


def _missing_packages() -> list[str]:
    missing = {package for name, package in _NEEDED.items() if shutil.which(name) is None}
    missing |= {"frr" for daemon in Daemon if not (frr.PROGRAMS / daemon).exists()}
    return sorted(missing)


def _packages() -> Finding:
    missing = _missing_packages()
    meaning = "routing, namespaces and links"
    if missing:
        return Finding("programs", "missing", f"no {', '.join(missing)}", meaning, _INSTALL, needed=True)
    return Finding("programs", "ok", ", ".join(sorted(set(_NEEDED.values()))), meaning, "", needed=True)


def _mininet() -> Finding:
    meaning = "nodes and cables"
    if importlib.util.find_spec("mininet") is None:
        cure = "pip install 'twinbed[testbed]'"
        return Finding("Mininet's API", "missing", "not installed", meaning, cure, needed=True)
    return Finding("Mininet's API", "ok", "installed", meaning, "", needed=True)


def _try(trial: _Trial) -> Finding:
    """Run a trial's commands in a namespace of our own, if this process is root."""
    if os.geteuid() != 0:
        detail = "not tried: needs root"
        return Finding(trial.feature, "not allowed", detail, trial.meaning, _ROOT, trial.needed)
    fabric = f"doctor-{os.getpid()}"
    place = namespace(fabric, "t0")
    try:
        make_namespace(place)
        for command in trial.commands:
            done = run_in(place, command.split())
            if done.returncode:
                reason = (done.stderr.strip() or "refused").splitlines()[0].removeprefix("Error: ")
                detail = f"{command.split()[0]}: {reason}"
                return Finding(trial.feature, "missing", detail, trial.meaning, trial.cure, trial.needed)
    except BackendError as error:
        reason, _, cure = str(error).partition("; ")
        if "refused" in reason:
            return Finding(trial.feature, "not allowed", reason, trial.meaning, _ROOT, trial.needed)
        return Finding(trial.feature, "missing", reason, trial.meaning, cure or _ROOT, trial.needed)
    finally:
        leftovers.remove(fabric)
    return Finding(trial.feature, "ok", "tried", trial.meaning, "", trial.needed)


def _real_time() -> Finding:
    meaning = "BFD that is not disturbed by the machine's load; without it set real_time to false"
    if succeeds("chrt", "--fifo", "10", "true"):
        return Finding("real-time priority", "ok", "SCHED_FIFO", meaning)
    cure = _ROOT if os.geteuid() else "set real_time: false in a fabric's plan, or twinbed testbed up --stock"
    return Finding("real-time priority", "not allowed", "SCHED_FIFO was refused", meaning, cure)
