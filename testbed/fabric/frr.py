"""FRR in one namespace: what zebra, bfdd and bgpd are told, and their start and end.

For: hosts and ToRs of a fabric. Not for: when which of them starts (up.py, faults.py). Each instance has a
path space (`-N`) of its namespace's name, which keeps configurations, sockets and process ids apart. Sources:
RFC 7938 (BGP in data centres: external sessions only), RFC 8365 (EVPN with VXLAN), RFC 5880 and 5882 (BFD).
"""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from testbed.fabric.links import popen_in, run_in
from testbed.fabric.model import Daemon, Host, Plan, Tor
from testbed.fabric.ownership import FRR_FOLDERS
from twinbed import BackendError

PROGRAMS = Path("/usr/lib/frr")
USER = "frr"

START_TIMEOUT_S = 20.0
"""For one daemon to be ready; a tenth of a second on an idle machine."""

_CONFIGURATIONS, _RUNNING = FRR_FOLDERS
_TEMPORARY = Path("/var/tmp/frr")
"""Where FRR keeps a directory for each daemon's crash log."""
_STARTED = ".started"
"""Ending of the file with the process id that a daemon was started with."""

_DEATH_TIMEOUT_MS = 5_000

_BFD_PROFILE = "uplink"
"""Intervals below 50 ms are taken from a profile only."""

_REAL_TIME_PRIORITY = 10
"""Of bfdd, SCHED_FIFO. At such a one bgpd would starve the machine."""

_NICE = -15
"""Of zebra and bgpd."""


def configure(plan: Plan, router: Host | Tor) -> None:
    """Writes the configurations of a namespace's daemons. Raises BackendError where that is not possible."""
    texts = {
        Daemon.ZEBRA: _zebra(plan, router),
        Daemon.BFDD: _bfdd(plan),
        Daemon.BGPD: _bgpd(router),
    }
    try:
        owner = pwd.getpwnam(USER)
    except KeyError:
        raise BackendError("no user frr here; install FRR: sudo apt install frr") from None
    try:
        for folder in FRR_FOLDERS:
            own = folder / router.namespace
            own.mkdir(mode=0o750, parents=True, exist_ok=True)
            os.chown(own, owner.pw_uid, owner.pw_gid)
        for daemon, text in texts.items():
            _write(_configuration(router.namespace, daemon), text, owner)
        # Without one vtysh complains each time.
        _write(_CONFIGURATIONS / router.namespace / "vtysh.conf", "", owner)
    except OSError as error:
        raise BackendError(f"{error.filename}: cannot be written ({error.strerror}); run as root") from error


def start(plan: Plan, namespace: str, daemons: Sequence[Daemon] = tuple(Daemon)) -> None:
    """Starts daemons, in the order in which they are declared, and waits until each is ready.

    Raises BackendError with the daemon's own words when one does not start.
    """
    for daemon in Daemon:
        if daemon in daemons:
            _start(plan, namespace, daemon)


def kill(namespace: str, daemons: Sequence[Daemon]) -> None:
    """kill -9; returns when they are gone. What they left in the file system goes, too."""
    pids = (pid_of(namespace, each) for each in daemons)
    kill_processes([each for each in pids if each is not None])


def pid_of(namespace: str, daemon: Daemon) -> int | None:
    """Process id of a running daemon; None where it does not run."""
    try:
        pid = int((_RUNNING / namespace / f"{daemon}.pid").read_text())
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if name == daemon and namespace.encode() in arguments else None


def show(namespace: str, command: str, daemon: Daemon) -> str:
    """What a daemon answers to a command of vtysh (`show bfd peers json`). Raises BackendError when it does
    not answer."""
    done = run_in(namespace, ("vtysh", "-N", namespace, "-d", str(daemon), "-c", command))
    if done.returncode:
        raise BackendError(f"{daemon} in {namespace}: {done.stderr.strip() or 'no answer'}; does it run?")
    return done.stdout


def kill_processes(pids: Iterable[int]) -> None:
    """kill -9; returns when they are gone. What daemons of FRR left among temporary files goes, too."""
    handles = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            handles[os.pidfd_open(pid)] = pid, _temporary_of(pid)
    for handle in handles:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    for handle, (pid, folders) in handles.items():
        end = select.poll()
        end.register(handle, select.POLLIN)
        end.poll(_DEATH_TIMEOUT_MS)
        os.close(handle)
        # One that was only starting had its folder, and nothing in it open.
        for each in {*folders, *_TEMPORARY.glob(f"*.{pid}")}:
            shutil.rmtree(each, ignore_errors=True)


def _temporary_of(pid: int) -> list[Path]:
    """A daemon's folder has the process id of its start in its name, and the daemon keeps it open."""
    found = []
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = each.readlink()
                if target.parent == _TEMPORARY:
                    found.append(target)
    return found


def remove_temporary(folder: Path) -> None:
    """What daemons of the namespace whose running folder this is left among temporary files, dead by now.

    A daemon that has logged nothing yet has nothing open there, so its number is noted as it starts.
    """
    for each in folder.glob(f"*{_STARTED}"):
        with suppress(OSError):
            number = each.read_text().strip()
            if number.isdecimal():
                shutil.rmtree(_TEMPORARY / f"{each.name.removesuffix(_STARTED)}.{number}", ignore_errors=True)


def _start(plan: Plan, namespace: str, daemon: Daemon) -> None:
    own = _RUNNING / namespace
    priority = _priority(daemon) if plan.real_time and not plan.stock else ()
    command = [
        *("sh", "-c", 'echo $$ >"$0"; exec "$@"', str(own / f"{daemon}{_STARTED}")),
        *(*priority, str(PROGRAMS / daemon), "--daemon", "--pathspace", namespace, "--vty_port", "0"),
        *("--config_file", str(_configuration(namespace, daemon)), "--user", USER, "--group", USER),
        *("--log", f"file:{own / daemon}.log", "--log-level", "warnings"),
    ]
    words = own / f"{daemon}.out"
    with words.open("wb") as out:
        process = popen_in(namespace, command, stdout=out, stderr=out)
        try:
            code = process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
    if code or code is None or pid_of(namespace, daemon) is None:
        said = " ".join(words.read_text(errors="replace").split()) or "no reason given"
        raise BackendError(f"{daemon} in {namespace} does not start: {said}{_cure(said, bool(priority))}")


def _priority(daemon: Daemon) -> tuple[str, ...]:
    """The command that starts another one with a daemon's priority."""
    if daemon is Daemon.BFDD:
        return ("chrt", "--fifo", str(_REAL_TIME_PRIORITY))
    # `nice` adds to what this process has.
    return ("nice", "-n", str(_NICE - os.getpriority(os.PRIO_PROCESS, 0)))


def _cure(said: str, has_priority: bool) -> str:
    if has_priority and "not permitted" in said.lower():
        return "; real-time priorities are refused here: set real_time: false in the plan, or take --stock"
    return "; twinbed testbed doctor says what is missing"


def _configuration(namespace: str, daemon: Daemon) -> Path:
    return _CONFIGURATIONS / namespace / f"{daemon}.conf"


def _write(path: Path, text: str, owner: pwd.struct_passwd) -> None:
    path.write_text(text)
    path.chmod(0o640)
    os.chown(path, owner.pw_uid, owner.pw_gid)


def _zebra(plan: Plan, router: Host | Tor) -> str:
    lines = [f"hostname {router.namespace}"]
    if not plan.stock:
        # The kernel's groups fall out of step with zebra after a device went down and up, and stay so.
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
    if isinstance(router, Host):
        neighbours = [each.gateway for each in router.uplinks]
        identity = router.loopback
    else:
        neighbours = [_other_end(each) for each in router.addresses]
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
        *(f" neighbor {each} peer-group edge" for each in neighbours),
        " address-family ipv4 unicast",
        *([f"  network {identity}/32"] if isinstance(router, Host) else []),
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
    """A host is no way from one ToR to another."""
    return ["  neighbor edge route-map own out"] if isinstance(router, Host) else []


def _tunnels(router: Host | Tor) -> str:
    """A tunnel's next hop is its far end, whoever passes the route on."""
    return (
        "  advertise-all-vni" if isinstance(router, Host) else "  neighbor edge attribute-unchanged next-hop"
    )


def _other_end(address: str) -> str:
    """Of a /31, from its even address."""
    start, _, last = address.rpartition(".")
    return f"{start}.{int(last) ^ 1}"


def _text(lines: Sequence[str]) -> str:
    return "\n".join([*lines, ""])
