"""The dashboard and the alerts that ship: what they ask for exists, and each alert fires when it should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.connect import grafana
from testbed.containers.exporting.table import TABLE
from tests.lab.connect.servers import needs

CASES = sorted((Path(__file__).parent / "alerts").glob("*.yaml"))
DASHBOARD = json.loads(grafana.content("dashboard.json"))
RULES = [
    rule for group in yaml.safe_load(grafana.content("alerts.yaml"))["groups"] for rule in group["rules"]
]
OF_PROMETHEUS = {"le", "instance", "job"}


def series() -> dict[str, set[str]]:
    """Return the labels of every series that the table's metrics have."""
    found = {}
    for metric in TABLE.values():
        ends = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        found |= {metric.name + end: {*metric.labels} for end in ends}
    return found


def expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (rule["expr"] for rule in RULES)


@pytest.mark.parametrize("expression", [*expressions()])
def test_an_expression_uses_metrics_and_labels_of_the_table_only(expression):
    known, used = series(), re.findall(r"twinbed_\w+", expression)
    assert used
    assert set(used) <= known.keys()
    labels = {
        label.strip()
        for group in re.findall(r"(?:by|without) \(([^)]*)\)", expression)
        for label in group.split(",")
    }
    allowed = set.union(*(known[name] for name in used))
    assert labels <= allowed | OF_PROMETHEUS
    for name, matchers in re.findall(r"(twinbed_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)=", matchers)) <= known[name]


def test_every_program_s_metrics_of_these_topics_are_shown():
    shown = " ".join(expressions())
    for topic in (
        "cpu_limit",
        "throttled",
        "oom_grants",
        "oom_kills",
        "pool",
        "agent_connected",
        "decision_latency",
    ):
        assert topic in shown


def test_legends_name_labels_that_the_expression_keeps():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(
                re.search(rf"\b{label}\b", target["expr"]) or label in _kept(target["expr"])
                for label in labels
            )


def _kept(expression: str) -> set[str]:
    used = [series()[name] for name in re.findall(r"twinbed_\w+", expression)]
    return set.intersection(*used) if "sum" not in expression else set()


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        apart = [
            one[start] + one[size] <= other[start] or other[start] + other[size] <= one[start]
            for start, size in (("x", "w"), ("y", "h"))
        ]
        assert any(apart)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_the_dashboard_asks_for_its_data_source():
    sources = {
        json.dumps(item["datasource"])
        for panel in DASHBOARD["panels"]
        for item in (panel, *panel.get("targets", ()))
        if "datasource" in item
    }
    assert sources == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "application"]


def test_promtool_accepts_the_rules(tmp_path):
    promtool = needs("promtool")
    grafana.write_to(tmp_path)
    checked = subprocess.run(
        [promtool, "check", "rules", tmp_path / "twinbed-alerts.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert f"{len(RULES)} rules found" in checked.stdout


def test_every_alert_has_its_case():
    assert [case.stem for case in CASES] == sorted(rule["alert"] for rule in RULES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_an_alert_fires_when_it_should_and_not_otherwise(case, tmp_path):
    promtool = needs("promtool")
    (tmp_path / "alerts.yaml").write_text(grafana.content("alerts.yaml"))
    (tmp_path / case.name).write_text(case.read_text())
    expected = yaml.safe_load(case.read_text())["tests"]
    fires = {"exp_alerts" in moment for test in expected for moment in test["alert_rule_test"]}
    assert fires == {True, False}
    tested = subprocess.run(
        [promtool, "test", "rules", tmp_path / case.name], capture_output=True, text=True, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "SUCCESS" in tested.stdout


def test_the_verb_writes_both_files(twinbed, tmp_path):
    ended = twinbed("controller", "monitoring", tmp_path / "new" / "folder")
    assert ended.code == 0, ended.err
    paths = [Path(line) for line in ended.out.splitlines()]
    assert [path.name for path in paths] == ["twinbed-dashboard.json", "twinbed-alerts.yaml"]
    assert json.loads(paths[0].read_text()) == DASHBOARD
    (tmp_path / "file").touch()
    assert "file" in twinbed("controller", "monitoring", tmp_path / "file").refused
