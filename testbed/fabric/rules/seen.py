"""Read the rules of a fabric's hosts from outside, and check that they did not change.

For: measurements and fault campaigns, which must show that a failover changes no rule. Not for: agents, which
read through their applier. Source: our design.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control.reconciler.model import Rules
from testbed.fabric import place
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric
from testbed.fabric.netlink import Socket
from testbed.fabric.rules import bpf, flower
from twinbed import InvariantError


def installed(namespace: str) -> Rules:
    """Return all rules on a host's representors, of both appliers, sorted by (device, mac).

    Raises BackendError if there is no such host, OSError with the kernel's reason.
    """
    with in_namespace(namespace), Socket() as netlink:
        devices = place.here().devices
        return Rules.joined([bpf.installed(netlink, devices), flower.installed(netlink, devices)])


@contextmanager
def unchanged(fabric: Fabric) -> Iterator[None]:
    """Check that no rule changes during the block; a rule with another handle is another rule.

    Raises InvariantError at the block's end, naming the host and the address of the first rule that changed.
    """
    before = [installed(host.namespace) for host in fabric.hosts]
    yield
    for host, was in zip(fabric.hosts, before, strict=True):
        difference = set(_rows(was)) ^ set(_rows(installed(host.namespace)))
        if difference:
            _, mac, *_ = min(difference)
            raise InvariantError(f"{host.namespace}: the rule for {mac:012x} has changed")


def _rows(rules: Rules) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(rules, name).tolist() for name in Rules.__slots__), strict=True))
