"""Lines for a shell: `docker update` of each container, which takes effect at once and without a restart.

Docker cannot remove a limit that was set with --cpus or --memory, so all CPUs or all memory of the machine
take the place of no limit. Swap is twice the memory, which is Docker's own default, because it refuses a
memory limit above the old swap limit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import numpy as np

from control.allocator.shares import shares
from lab.containers.advise.forms.common import LEAST_BYTES
from lab.containers.advise.model import Row

_ALL_MEMORY = "\"$(awk '/^MemTotal:/ {print $2}' /proc/meminfo)k\""
"""All memory of the machine, in words of a shell, KiB."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_REPLACE = (
    "# Some names after -- are no names of Docker containers, such as those of pods. Replace them by\n"
    "# names of `docker ps --format '{{.Names}}'`; on Kubernetes, take the form kubernetes instead.\n"
)


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return a shell script by file name."""
    known = all(_NAME.fullmatch(member) for row in rows for member in row.members)
    head = ["#!/bin/sh\nset -eu\n", "" if known else _REPLACE]
    return {"docker-update.sh": "".join([*head, *map(_line, rows)])}


def _line(row: Row) -> str:
    advised = row.advised
    words = ["docker", "update"]
    if advised.cpu_limit_cores == "none":
        words.append('--cpus "$(nproc)"')
    elif advised.cpu_limit_cores is not None:
        words.append(f"--cpus {advised.cpu_limit_cores:.3f}")
    if advised.cpu_request_cores is not None:
        words.append(f"--cpu-shares {shares(np.array([advised.cpu_request_cores]))[0]}")
    if advised.memory_request_bytes is not None:
        words.append(f"--memory-reservation {max(advised.memory_request_bytes, LEAST_BYTES)}")
    if advised.memory_limit_bytes == "none":
        words.append(f"--memory {_ALL_MEMORY} --memory-swap -1")
    elif advised.memory_limit_bytes is not None:
        limit = max(advised.memory_limit_bytes, LEAST_BYTES)
        words.append(f"--memory {limit} --memory-swap {2 * limit}")
    return " ".join([*words, "--", *map(shlex.quote, row.members)]) + "\n"
