"""Network namespaces for a scheduler with its storage, and for each worker, with a link between.

For: the campaign, which runs inside the first of them. Not for: the processes there. Names begin with `tb-`
and end with this process's id; everything with such a name is removed when the context ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from twinbed import BackendError

_NAMESPACES = Path("/run/netns")
"""Where `ip netns` names namespaces."""


@dataclass(frozen=True, slots=True)
class Places:
    """Names of the namespaces.

    hub: namespace of the scheduler.
    workers: namespaces of the workers. The hub's address is the first of each link.
    """

    hub: str
    workers: tuple[str, ...]

    @staticmethod
    def hub_address(number: int) -> str:
        """Return the hub's address on the link to a worker."""
        return f"10.213.{number}.1"


@contextmanager
def places(workers: int) -> Iterator[Places]:
    """Make the namespaces and links. Raises BackendError where this machine refuses."""
    mark = f"{os.getpid() % 100000}"
    made = Places(f"tb-s{mark}-hub", tuple(f"tb-s{mark}-w{number}" for number in range(workers)))
    with ExitStack() as stack:
        for name in (made.hub, *made.workers):
            stack.callback(_remove, name)
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        inside(made.hub, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number, name in enumerate(made.workers):
            own, other = f"tb{mark}h{number}", f"tb{mark}w{number}"
            _ip("-n", made.hub, "link", "add", own, "type", "veth", "peer", "name", other, "netns", name)
            _ip("-n", made.hub, "addr", "add", f"{made.hub_address(number)}/24", "dev", own)
            _ip("-n", name, "addr", "add", f"10.213.{number}.2/24", "dev", other)
            _ip("-n", made.hub, "link", "set", own, "up")
            _ip("-n", name, "link", "set", other, "up")
            _ip("-n", name, "route", "add", "default", "via", made.hub_address(number))
        yield made


def silence(name: str) -> None:
    """Drop everything that a namespace sends and receives, silently; the link stays up."""
    chains = "".join(
        f"chain {hook} {{ type filter hook {hook} priority 0; policy drop; }}\n"
        for hook in ("input", "output")
    )
    inside(name, "nft", f"table inet tb {{\n{chains}}}")


def restore(name: str) -> None:
    """Undo `silence`: let the place's packets pass again."""
    inside(name, "nft", "delete table inet tb")


def inside(name: str, *command: str) -> None:
    """Run a command in a namespace. Raises BackendError."""
    _run("ip", "netns", "exec", name, *command)


def _remove(name: str) -> None:
    """Remove a namespace of ours, if it was made, with every process in it, also those of a campaign that was
    killed."""
    if not (_NAMESPACES / name).exists():
        return
    ended = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    for pid in ended.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    _ip("netns", "del", name)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise BackendError(f"{' '.join(command[:6])}: {' '.join(ended.stderr.split()) or ended.returncode}")
