"""What an agent asks of whoever puts tunnel rules into the kernel.

For: agent.py, over bpf.py and flower.py. Not for: when and why (control.reconciler). Both make rules on the
ingress of representors that send a frame with a rule's destination MAC address to its VTEP; a frame without a
rule goes on to the bridge. What a rule's columns mean stands in control.reconciler.model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from control.reconciler.model import Rules, Whole
from control.reconciler.ports import RuleChange


@dataclass(frozen=True, slots=True)
class Refused:
    """rows: int64[k], positions of the change's rules that are not in force. why: the system's word for the
    first; full: the kernel takes no more rules."""

    rows: Whole
    why: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class FoundRules:
    """All rules on the representors, whoever's. interrupted: the kernel says that they changed meanwhile;
    in_parts: they came in several datagrams, so that a change between two may have hidden one."""

    rules: Rules
    interrupted: bool = False
    in_parts: bool = False


class Applier(Protocol):
    """Carries out changes of rules; what it installed stays when it is closed or its process is killed."""

    @property
    def ports(self) -> frozenset[int]:
        """Netlink ports that its requests come from."""
        ...

    def read(self) -> FoundRules:
        """The rules now. Raises OSError or BackendError with the kernel's reason."""
        ...

    def carry_out(self, change: RuleChange) -> Refused | None:
        """Makes the change, in the order of its rows; None: all of it is in force."""
        ...

    def measures(self) -> dict[str, int]:
        """What it counts, by name; for reports."""
        ...

    def close(self) -> None:
        """Lets go of sockets and maps. Idempotent."""
        ...
