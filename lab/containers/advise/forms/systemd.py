"""Drop-ins for systemd units: UNIT.d/50-twinbed.conf, for /etc/systemd/system.

For: services, slices and scopes; a name without such an ending counts as a service. CPUWeight is what the
kubelet and `twinbed apply` give the request, by Kubernetes' formula. MemoryHigh, above which the kernel takes
pages back, lies halfway between the request and the limit. Source: systemd.resource-control(5),
systemd.unit(5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from control.allocator.shares import shares, weight
from lab.containers.advise.model import Row

_KINDS = {".service": "Service", ".slice": "Slice", ".scope": "Scope"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.@-")
_LONGEST_NAME = 200
_CUT_ESCAPE = re.compile(r"\\(x[0-9a-f]?)?\Z")


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return a drop-in by path for each row's unit."""
    made: dict[str, str] = {}
    for row in rows:
        for member in row.members:
            unit = _unit(member)
            made[f"{unit}.d/50-twinbed.conf"] = _drop_in(row, unit)
    return made


def _drop_in(row: Row, unit: str) -> str:
    advised = row.advised
    lines = [f"[{next(kind for ending, kind in _KINDS.items() if unit.endswith(ending))}]"]
    if advised.cpu_limit_cores == "none":
        lines.append("CPUQuota=")
    elif advised.cpu_limit_cores is not None:
        lines.append(f"CPUQuota={100 * advised.cpu_limit_cores:.1f}%")
    if advised.cpu_request_cores is not None:
        lines.append(f"CPUWeight={weight(shares(np.array([advised.cpu_request_cores])))[0]}")
    limit, request = advised.memory_limit_bytes, advised.memory_request_bytes
    if limit == "none":
        lines.append("MemoryMax=infinity")
    elif limit is not None:
        lines.append(f"MemoryMax={limit}")
        if request is not None:
            lines.append(f"MemoryHigh={(request + limit) // 2}")
    return "\n".join(lines) + "\n"


def _unit(name: str) -> str:
    """Return a unit's name as systemd spells any text: other characters as \\xNN (systemd-escape)."""
    ending = next((ending for ending in _KINDS if name.endswith(ending)), "")
    stem = name.removesuffix(ending).replace("/", "-")
    plain = "".join(
        char
        if char in _PLAIN and not (char == "." and index == 0)
        else "".join(f"\\x{byte:02x}" for byte in char.encode())
        for index, char in enumerate(stem)
    )
    return _CUT_ESCAPE.sub("", plain[:_LONGEST_NAME]) + (ending or ".service")
