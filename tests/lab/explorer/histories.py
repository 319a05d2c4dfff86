"""A small cluster's history as OpenMetrics text: two replicas of a Deployment, with what is set now."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tests.traces.prometheus.exposition import START_S, openmetrics

STEPS, STEP_S = 240, 60.0
MIB = 1 << 20


def _samples() -> Iterator[tuple[str, str, float, float]]:
    for pod, phase in (("web-0", 0.0), ("web-1", 1.0)):
        own, used = f'namespace="shop",pod="{pod}",container="app"', 0.0
        for row in range(STEPS + 1):
            at_s = START_S + row * STEP_S
            used += STEP_S * (0.3 + 0.2 * math.sin(row / 20 + phase))
            memory = MIB * (100 + 20 * math.sin(row / 30))
            yield "container_cpu_usage_seconds_total", f'{own},cpu="total"', used, at_s
            yield "container_memory_working_set_bytes", own, memory, at_s
            for kind, resource, value in (
                ("requests", "cpu", 1.0),
                ("limits", "cpu", 2.0),
                ("requests", "memory", 512.0 * MIB),
                ("limits", "memory", 512.0 * MIB),
            ):
                yield f"kube_pod_container_resource_{kind}", f'{own},resource="{resource}"', value, at_s
            owner = 'owner_kind="StatefulSet",owner_name="web"'
            yield "kube_pod_owner", f'namespace="shop",pod="{pod}",{owner}', 1.0, at_s


def shop() -> str:
    """Return the text. Its row is shop/web/app: 2 replicas, 1 core requested, limits of 2 and 512 MiB."""
    return openmetrics(_samples())
