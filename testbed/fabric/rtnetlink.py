"""Make links, addresses, neighbours and routes of a namespace by pyroute2.

For: setting a fabric up, a few requests at a time. Not for: dumps and changes of thousands of entries
(netlink.py, docs/decisions/0021). Source: pyroute2. Only modules that set something up import this one,
because importing pyroute2 takes a third of a second.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from testbed.fabric.links import in_namespace
from twinbed import BackendError


class Rtnetlink:
    """Requests for links, addresses, neighbours and routes of one namespace. Usable as a context manager.

    Raises BackendError if there is no such namespace.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        with in_namespace(namespace):
            self._kernel = IPRoute()

    def __enter__(self) -> Rtnetlink:
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel.close()

    def __call__(self, table: str, verb: str, device: str, **values: Any) -> None:
        """Make one request, such as ("link", "set", "tor0", mtu=1550, state="up").

        table: method of pyroute2's IPRoute. verb: its command. values: its keywords. device: name of the
        device that is made, or to which the entry belongs. Raises BackendError with the kernel's reason.
        """
        try:
            makes = (table, verb) == ("link", "add")
            which = {"ifname": device} if makes else {_KEY.get(table, "index"): self.index(device)}
            getattr(self._kernel, table)(verb, **which, **values)
        except NetlinkError as error:
            raise BackendError(
                f"{table} {verb} {device} in {self._namespace}: {os.strerror(error.code)}; "
                "twinbed testbed doctor says more"
            ) from error

    def index(self, device: str) -> int:
        """Return a device's ifindex. Raises BackendError if there is no such device."""
        try:
            with in_namespace(self._namespace):
                return socket.if_nametoindex(device)
        except OSError as error:
            raise BackendError(f"{device} in {self._namespace}: no such device; is the fabric up?") from error


_KEY = {"neigh": "ifindex", "fdb": "ifindex", "route": "oif"}
"""pyroute2's keyword for the device; `index` in the other tables."""
