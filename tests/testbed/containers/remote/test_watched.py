"""A real Prometheus scrapes a real controller and a real agent, and the dashboard shows them; needs root."""

from __future__ import annotations

import json
import os
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lab.connect import grafana
from testbed.containers.remote import certificates
from tests.lab.connect.servers import free_port, scraping
from tests.testbed.containers.remote.test_two_hosts import start

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("cgroups")]

DEADLINE_S = 90.0
AGENT = f"watched-{os.getpid()}"
BURSTS = "while :; do timeout 1 sh -c 'while :; do :; done'; sleep 1; done"
DEPLOYMENT = f"""\
policy: escra:gamma=0.01
applications:
  - name: shop
    cpu_limit_cores: 0.2
    memory_limit_bytes: 268435456
    containers:
      - {{name: busy, agent: {AGENT}, command: [sh, -c, "{BURSTS}"]}}
      - {{name: calm, agent: {AGENT}, command: [sleep, "1000"]}}
"""


def asked(url: str, path: str, **parameters: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}?{urllib.parse.urlencode(parameters)}", timeout=30) as answer:
        return json.load(answer)["data"]


def expressions() -> list[str]:
    dashboard = json.loads(grafana.content("dashboard.json"))
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    for variable, value in (("$__rate_interval", "10s"), ("$__range", "1m"), ("$application", ".*")):
        found = [expression.replace(variable, value) for expression in found]
    return found


def test_the_dashboard_s_expressions_return_data(tmp_path: Path) -> None:
    certificates.init(tmp_path / "pki")
    certificates.write_private(tmp_path / "a.pem", certificates.enroll(tmp_path / "pki", AGENT).bundle())
    (tmp_path / "shop.yaml").write_text(DEPLOYMENT)
    grafana.write_to(tmp_path)
    listen, of_controller, of_agent = (f"127.0.0.1:{free_port()}" for _ in range(3))
    config = f"""\
global: {{scrape_interval: 500ms, evaluation_interval: 1s}}
rule_files: [{tmp_path / "twinbed-alerts.yaml"}]
scrape_configs:
  - {{job_name: controller, static_configs: [{{targets: ["{of_controller}"]}}]}}
  - {{job_name: agent, static_configs: [{{targets: ["{of_agent}"]}}]}}
"""
    controller = ("controller", "run", str(tmp_path / "shop.yaml"), "--pki", str(tmp_path / "pki"))
    agent = ("agent", "run", "--controller", listen, "--identity", str(tmp_path / "a.pem"))
    with ExitStack() as undo:
        (tmp_path / "server").mkdir()
        url = undo.enter_context(scraping(tmp_path / "server", config))
        logs = tmp_path / "controller.log", tmp_path / "agent.log"
        undo.callback(start(logs[0], [], *controller, "--listen", listen, "--metrics", of_controller).end)
        undo.callback(start(logs[1], [], *agent, "--metrics", of_agent).end)
        wanting, deadline = expressions(), time.monotonic() + DEADLINE_S
        while wanting:
            assert time.monotonic() < deadline, (wanting, *(log.read_text()[-1000:] for log in logs))
            wanting = [text for text in wanting if not has_data(url, text)]
            time.sleep(0.5)
        throttled = 'rate(twinbed_container_throttled_periods_total{container="busy"}[10s])'
        # On a machine that others keep busy, the container reaches its limit only now and then.
        while float(asked(url, "/api/v1/query", query=throttled)["result"][0]["value"][1]) <= 0:
            assert time.monotonic() < deadline, "the container was never throttled"
            time.sleep(0.5)
        rules = asked(url, "/api/v1/rules")["groups"][0]["rules"]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}


def has_data(url: str, expression: str) -> bool:
    """Return whether every result is a number, and there is one. Raises HTTPError for what is no query."""
    results = asked(url, "/api/v1/query", query=expression)["result"]
    return bool(results) and all(result["value"][1] != "NaN" for result in results)
