"""A server that answers like Prometheus, of a few series in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

from tests.lab.connect.servers import Answer, say

Points = Callable[[float], float | None]
"""Value of a series at a time, s; None = no sample."""

START_S = 1_700_000_040.0
CPU = "container_cpu_usage_seconds_total"


def container(pod: str, **more: str) -> dict[str, str]:
    """Return the labels of a container's series."""
    return {"namespace": "shop", "pod": pod, "container": "app", **more}


def answering(series: dict[str, list[tuple[dict[str, str], Points]]], **envelope: object) -> Answer:
    """Answer as a Prometheus with these series by metric (or `timestamp(metric)`), whatever the selector.

    envelope: keys to add to each answer of query_range.
    """

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        form = parse_qs(body.decode())
        if not handler.path.endswith("/query_range"):
            wanted = {text.partition("{")[0] for text in form["match[]"]}
            found = [{"__name__": name, **own} for name in wanted for own, _ in series.get(name, ())]
            say(handler, 200, json.dumps({"status": "success", "data": found}).encode())
            return
        name = form["query"][0]
        name = name.partition("{")[0] + (")" if name.startswith("timestamp(") else "")
        start_s, end_s, step_s = (float(form[key][0]) for key in ("start", "end", "step"))
        times = [start_s + step_s * row for row in range(round((end_s - start_s) / step_s) + 1)]
        result = []
        for own, points in series.get(name, ()):
            values = [[time, repr(value)] for time in times if (value := points(time)) is not None]
            result.append({"metric": own if ")" in name else {"__name__": name, **own}, "values": values})
        data = {"resultType": "matrix", "result": [entry for entry in result if entry["values"]]}
        say(handler, 200, json.dumps({"status": "success", **envelope, "data": data}).encode())

    return answer


def steady(rate_cores: float = 0.5, start_s: float = START_S) -> Points:
    """Return a counter that grows evenly."""
    return lambda time: rate_cores * (time - start_s + 3600)
