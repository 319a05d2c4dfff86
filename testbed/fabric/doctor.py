"""What this machine can and cannot do for the fabric, and the one command that would mend each.

For: refusing to begin what cannot be ended. Not for: mending anything.
"""

from __future__ import annotations

import os
import shutil

from testbed.fabric.frr import PROGRAMS
from testbed.fabric.model import Daemon
from twinbed import BackendError

_PROGRAMS = {
    "ip": "iproute2",
    "bridge": "iproute2",
    "tc": "iproute2",
    "nft": "nftables",
    "mnexec": "mininet",
    "nsenter": "util-linux",
    "chrt": "util-linux",
    "vtysh": "frr",
}


def require() -> None:
    """Raises BackendError with the cure when a fabric cannot be made here."""
    if os.geteuid() != 0:
        raise BackendError("a fabric needs root: sudo twinbed testbed up")
    missing = {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    missing |= {"frr" for each in Daemon if not (PROGRAMS / each).exists()}
    if missing:
        raise BackendError(f"not installed: {', '.join(sorted(missing))}; sudo make system")
