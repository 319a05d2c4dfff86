"""An override for Docker Compose: `docker compose -f compose.yaml -f override.yaml up -d`.

For: `deploy.resources` of each service. Not for: finding a service's name, which is taken to be the
container's; the file says so. `!reset null` removes a limit (Compose 2.24 and later). A CPU request stands
twice: `docker compose` reads `cpu_shares` and passes no CPU of `reservations` on, and a swarm the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from control.allocator.shares import shares
from lab.containers.advise.forms.common import LEAST_BYTES, plain, unique
from lab.containers.advise.model import Row, Setting

_HEAD = (
    "# Services have their containers' names in the history. Rename those that compose.yaml calls "
    "otherwise:\n"
    "# `docker compose ps --format '{{.Name}} {{.Service}}'` lists both.\n"
)


class _Reset:
    """Stands for `!reset null`."""


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which knows `!reset`."""


_Dumper.add_representer(_Reset, lambda dumper, _: dumper.represent_scalar("!reset", "null"))


def files(rows: Sequence[Row]) -> dict[str, str]:
    """Return the override by file name."""
    services: dict[str, Any] = {}
    for row in rows:
        name = unique(services, plain(row.container or row.workload or row.name))
        services[name] = {"deploy": {"resources": _resources(row.advised)}}
        if row.advised.cpu_request_cores is not None:
            cores = np.array([row.advised.cpu_request_cores])
            services[name]["cpu_shares"] = int(shares(cores)[0])
    text = yaml.dump({"services": services}, Dumper=_Dumper, sort_keys=False, allow_unicode=False)
    return {"override.yaml": _HEAD + text}


def _resources(advised: Setting) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for section, cores, size in (
        ("limits", advised.cpu_limit_cores, advised.memory_limit_bytes),
        ("reservations", advised.cpu_request_cores, advised.memory_request_bytes),
    ):
        own: dict[str, Any] = {}
        if cores is not None:
            own["cpus"] = _Reset() if cores == "none" else f"{cores:.3f}"
        if size is not None:
            own["memory"] = _Reset() if size == "none" else f"{max(size, LEAST_BYTES)}b"
        if own:
            made[section] = own
    return made
