"""What rules a fabric's hosts have, seen from outside, and that something left them as they were.

For: measurements and fault campaigns, which must show that a failover changes no rule. Not for: agents, which
read through their applier.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from control.reconciler.model import Rules
from testbed.fabric import place
from testbed.fabric.links import in_namespace
from testbed.fabric.model import Fabric
from testbed.fabric.netlink import Socket
from testbed.fabric.rules import bpf, flower
from twinbed import InvariantError


def installed(namespace: str) -> Rules:
    """All rules on a host's representors, made in either way, sorted by (device, mac).

    Raises BackendError where there is no such host, OSError with the kernel's reason.
    """
    with in_namespace(namespace), Socket() as netlink:
        devices = place.here().devices
        parts = bpf.installed(netlink, devices), flower.installed(netlink, devices)
    columns = (np.concatenate([getattr(each, name) for each in parts]) for name in Rules.__slots__)
    rules = Rules(*columns)
    return rules.take(np.lexsort((rules.mac, rules.device)))


@contextmanager
def unchanged(fabric: Fabric) -> Iterator[None]:
    """Raises InvariantError, at the block's end, naming the host and the address of the first rule that is
    not what it was at the block's beginning: another handle is another rule."""
    before = [installed(host.namespace) for host in fabric.hosts]
    yield
    for host, was in zip(fabric.hosts, before, strict=True):
        difference = set(_rows(was)) ^ set(_rows(installed(host.namespace)))
        if difference:
            _, mac, *_ = min(difference)
            raise InvariantError(f"{host.namespace}: the rule for {mac:012x} is not what it was")


def _rows(rules: Rules) -> list[tuple[int, ...]]:
    return list(zip(*(getattr(rules, name).tolist() for name in Rules.__slots__), strict=True))
