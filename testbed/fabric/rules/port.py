"""The port between an agent and the code that puts tunnel rules into the kernel.

For: agent.py, implemented by bpf.py and flower.py. Not for: deciding when and why (control.reconciler).
Source: our design. Both implementations make rules on the ingress of representors that send a frame with a
rule's destination MAC address to its VTEP. A frame without a rule goes to the bridge.
control.reconciler.model describes a rule's columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from control.reconciler.model import Rules, Whole
from control.reconciler.ports import RuleChange


@dataclass(frozen=True, slots=True)
class Refused:
    """The kernel refused a part of a change.

    rows: int64[k], positions of the change's rules that are not in force. why: the system's error for the
    first one. full: whether the kernel takes no more rules.
    """

    rows: Whole
    why: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class FoundRules:
    """All owners' rules on the representors.

    interrupted: whether they changed meanwhile, as the kernel says. in_parts: whether they came in several
    datagrams. A change between two datagrams may have hidden a rule.
    """

    rules: Rules
    interrupted: bool = False
    in_parts: bool = False


class Applier(Protocol):
    """Carries out rule changes. Installed rules stay when the applier is closed or its process is killed."""

    @property
    def ports(self) -> frozenset[int]:
        """Netlink ports from which its requests come."""
        ...

    def read(self) -> FoundRules:
        """Return the present rules. Raises OSError or BackendError with the kernel's reason."""
        ...

    def carry_out(self, change: RuleChange) -> Refused | None:
        """Make the change in the order of its rows. Returns None if all of it is in force."""
        ...

    def measures(self) -> dict[str, int]:
        """Return name → count, for reports."""
        ...

    def close(self) -> None:
        """Close sockets and maps. Idempotent."""
        ...
