"""Check whether one endpoint answers another, as an application would.

For: waiting until a path is back. Not for: measuring how long it was gone (probe.py). Source: RFC 863
(discard).
"""

from __future__ import annotations

import socket

from testbed.fabric import links
from testbed.fabric.model import Endpoint

_NOBODY_LISTENS = 9
"""TCP's discard port. Nobody listens there, so the other kernel answers that it is closed."""


def answers(source: Endpoint, destination: Endpoint, *, within_s: float = 0.5) -> bool:
    """Return whether a TCP segment and its answer get through within within_s."""
    with links.in_namespace(source.namespace), socket.socket() as asking:
        asking.settimeout(within_s)
        try:
            asking.connect((destination.address, _NOBODY_LISTENS))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True
