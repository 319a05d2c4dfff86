"""Configure, start and kill FRR in one namespace: zebra, bfdd and bgpd.

For: hosts and ToRs of a fabric. Not for: deciding when they start (up.py, faults.py). Source: RFC 7938 (BGP
in data centres: external sessions only), RFC 8365 (EVPN with VXLAN), RFC 5880 and 5882 (BFD). Each instance
has a path space (`-N`) with its namespace's name, which keeps configurations, sockets and process ids apart.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from testbed import processes
from testbed.fabric import frr_folders
from testbed.fabric.frr_folders import USER
from testbed.fabric.links import popen_in, run_in
from testbed.fabric.model import Daemon, Host, Plan, Tor
from twinbed import BackendError

PROGRAMS = Path("/usr/lib/frr")

START_TIMEOUT_S = 20.0
"""Longest time until a daemon is ready, s. On an idle machine it takes a tenth of a second."""

_DEATH_TIMEOUT_S = 5.0

_BFD_PROFILE = "uplink"
"""Name of the BFD profile. FRR accepts intervals below 50 ms in a profile only."""

_REAL_TIME_PRIORITY = 10
"""Priority of bfdd, SCHED_FIFO. With such a priority bgpd would starve the machine."""

_NICE = -15
"""Nice value of zebra and bgpd."""


def configure(plan: Plan, router: Host | Tor) -> None:
    """Write the configurations of a namespace's daemons. Raises BackendError if that is not possible."""
    texts = {
        Daemon.ZEBRA: _zebra(plan, router),
        Daemon.BFDD: _bfdd(plan),
        Daemon.BGPD: _bgpd(router),
    }
    # Without a file of its own vtysh complains at every call.
    files = {f"{daemon}.conf": text for daemon, text in texts.items()} | {"vtysh.conf": ""}
    frr_folders.make(router.namespace, files)


def start(plan: Plan, namespace: str, daemons: Sequence[Daemon] = tuple(Daemon)) -> None:
    """Start daemons in the order of `Daemon`, and wait until each is ready.

    Raises BackendError with the daemon's own message if one does not start.
    """
    for daemon in Daemon:
        if daemon in daemons:
            _start(plan, namespace, daemon)


def kill(namespace: str, daemons: Sequence[Daemon]) -> None:
    """Kill daemons (SIGKILL), wait until they have ended, and remove their files."""
    kill_processes(lambda: [pid for daemon in daemons if (pid := pid_of(namespace, daemon)) is not None])


def pid_of(namespace: str, daemon: Daemon) -> int | None:
    """Return the process id of a running daemon; None if it does not run."""
    if (pid := frr_folders.written_pid(namespace, daemon)) is None:
        return None
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return pid if name == daemon and namespace.encode() in arguments else None


def show(namespace: str, command: str, daemon: Daemon) -> str:
    """Return a daemon's answer to a command of vtysh, such as `show bfd peers json`.

    Raises BackendError if it does not answer.
    """
    # As root, vtysh would trust a folder and sockets that belong to the user frr.
    who = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "--")
    done = run_in(namespace, (*who, "vtysh", "-N", namespace, "-d", str(daemon), "-c", command))
    if done.returncode:
        raise BackendError(f"{daemon} in {namespace}: {done.stderr.strip() or 'no answer'}; does it run?")
    return done.stdout


def kill_processes(find: Callable[[], Iterable[int]]) -> None:
    """Kill processes (SIGKILL), wait until they have ended, and remove temporary files of FRR's daemons.

    find: function that lists the ids of the processes; see processes.handles.
    """
    with processes.handles(find) as found:
        # A daemon that is still starting has a folder but no open file in it.
        folders = {name for pid in found for name in _temporary_of(pid)}
        ends = tuple(f".{pid}" for pid in found)
        for handle in found.values():
            processes.send(handle, signal.SIGKILL)
        for handle in found.values():
            processes.ended(handle, _DEATH_TIMEOUT_S)
        frr_folders.remove_temporary(lambda name: name in folders or name.endswith(ends))


def _temporary_of(pid: int) -> set[str]:
    """Return the names of temporary folders that a daemon keeps open; they end with its first process id."""
    names = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = descriptor.readlink()
                if target.parent == frr_folders.TEMPORARY:
                    names.add(target.name)
    return names


def _start(plan: Plan, namespace: str, daemon: Daemon) -> None:
    priority = _priority(daemon) if plan.real_time and not plan.stock else ()
    command = [
        *("sh", "-c", 'echo $$ >"$0"; exec "$@"', str(frr_folders.started(namespace, daemon))),
        *(*priority, str(PROGRAMS / daemon), "--daemon", "--pathspace", namespace, "--vty_port", "0"),
        *("--config_file", str(frr_folders.configuration(namespace, daemon))),
        *("--user", USER, "--group", USER),
        *("--log", f"file:{frr_folders.log(namespace, daemon)}", "--log-level", "warnings"),
        *_distributed(plan, namespace, daemon),
    ]
    output = frr_folders.output(namespace, daemon)
    with output.open("wb") as out:
        process = popen_in(namespace, command, stdout=out, stderr=out)
        try:
            code = process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
    if code or code is None or pid_of(namespace, daemon) is None:
        message = " ".join(output.read_text(errors="replace").split()) or "no reason given"
        raise BackendError(
            f"{daemon} in {namespace} does not start: {message}{_cure(message, bool(priority))}"
        )


def _priority(daemon: Daemon) -> tuple[str, ...]:
    """Return the command that starts another one with a daemon's priority."""
    if daemon is Daemon.BFDD:
        return ("chrt", "--fifo", str(_REAL_TIME_PRIORITY))
    # `nice` adds to this process's own value.
    return ("nice", "-n", str(_NICE - os.getpriority(os.PRIO_PROCESS, 0)))


def plane_socket(namespace: str) -> Path:
    """Return the socket on which bfdd waits for a data plane, if the plan has one."""
    return frr_folders.running(namespace) / "plane.sock"


def _distributed(plan: Plan, namespace: str, daemon: Daemon) -> tuple[str, ...]:
    """Return the option with which bfdd leaves packets and timers to a data plane; empty for other
    daemons."""
    # As the client, FRR 8.4 closes its own socket, so bfdd listens.
    wanted = plan.bfd_plane and daemon is Daemon.BFDD
    return ("--dplaneaddr", f"unix:{plane_socket(namespace)}") if wanted else ()


def _cure(message: str, has_priority: bool) -> str:
    if has_priority and "not permitted" in message.lower():
        return (
            "; real-time priorities are refused here: set real_time: false in a plan, or use testbed up "
            "--stock; studies and calibrate need a machine that grants them"
        )
    return "; twinbed testbed doctor says what is missing"


def _zebra(plan: Plan, router: Host | Tor) -> str:
    lines = [f"hostname {router.namespace}"]
    if not plan.stock:
        # After a device went down and up, the kernel's next-hop groups differ from zebra's and stay so.
        lines.append("no zebra nexthop kernel enable")
    return _text(lines)


def _bfdd(plan: Plan) -> str:
    interval_ms = round(plan.bfd.interval_s * 1e3)
    return _text(
        [
            "bfd",
            f" profile {_BFD_PROFILE}",
            f"  detect-multiplier {plan.bfd.multiplier}",
            f"  receive-interval {interval_ms}",
            f"  transmit-interval {interval_ms}",
            " exit",
            "exit",
        ]
    )


def _bgpd(router: Host | Tor) -> str:
    neighbours = [uplink.gateway for uplink in router.uplinks]
    if isinstance(router, Host):
        identity = router.loopback
    else:
        ends = (*router.addresses, *((router.peer,) if router.peer else ()))
        neighbours = [*map(_other_end, ends), *neighbours]
        identity = router.router_id
    lines = [
        f"hostname {router.namespace}",
        "frr defaults datacenter",
        "bgp as-path access-list own seq 5 permit ^$",
        "route-map own permit 10",
        " match as-path own",
        "exit",
        f"router bgp {router.asn}",
        f" bgp router-id {identity}",
        " no bgp ebgp-requires-policy",
        " no bgp default ipv4-unicast",
        " bgp bestpath as-path multipath-relax",
        " timers bgp 1 3",
        " neighbor edge peer-group",
        " neighbor edge remote-as external",
        f" neighbor edge bfd profile {_BFD_PROFILE}",
        " neighbor edge advertisement-interval 0",
        " neighbor edge timers connect 1",
        *(f" neighbor {address} peer-group edge" for address in neighbours),
        " address-family ipv4 unicast",
        *([f"  network {identity}/32"] if router.loopback else []),
        "  neighbor edge activate",
        *_announced(router),
        " exit-address-family",
        " address-family l2vpn evpn",
        "  neighbor edge activate",
        *_announced(router),
        _tunnels(router),
        " exit-address-family",
        "exit",
    ]
    return _text(lines)


def _announced(router: Host | Tor) -> list[str]:
    """Return the filter for a host's own routes, so that the host is no path between ToRs."""
    return ["  neighbor edge route-map own out"] if isinstance(router, Host) else []


def _tunnels(router: Host | Tor) -> str:
    """Return the line that keeps a tunnel's far end as next hop when a router passes the route on."""
    return (
        "  advertise-all-vni" if isinstance(router, Host) else "  neighbor edge attribute-unchanged next-hop"
    )


def _other_end(address: str) -> str:
    """Return the other address of a /31."""
    start, _, last = address.rpartition(".")
    return f"{start}.{int(last) ^ 1}"


def _text(lines: Sequence[str]) -> str:
    return "\n".join([*lines, ""])
