"""The page Advise: its states, and what it shows of an advice."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from lab.containers.advise import forms
from lab.containers.advise.model import Advice
from lab.explorer import advise_results
from lab.explorer.advise_job import AdviceRequest
from lab.explorer.advise_results import Answer
from tests.lab.explorer.test_pages import html, texts
from tests.patience import PATIENCE_S

MIB = 1 << 20


def interval(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean, "high": mean}


def outcome(throttled: float | None, money: float) -> dict[str, Any]:
    figures = dict.fromkeys(("oom_events", "restarts", "late_share", "cpu_slack_cores", "memory_slack_bytes"))
    return {"throttled_share": throttled and interval(throttled), "money_per_day": interval(money)} | figures


def row(name: str, verdict: str) -> dict[str, Any]:
    return {
        "name": name,
        "members": [name],
        "replicas": 2,
        "current": {"cpu_request_cores": 1.0, "cpu_limit_cores": 2.0, "memory_limit_bytes": 512 * MIB},
        "advised": {"cpu_request_cores": 0.5, "cpu_limit_cores": "none", "memory_limit_bytes": 256 * MIB},
        "policy": "requests-only",
        "verdict": verdict,
        "reason": "It *reserves* less.",
        "before": outcome(0.01, 2.0),
        "after": outcome(None, 1.0),
        "peak_cores": 0.6,
        "peak_bytes": 128 * MIB,
    }


def answer(*rows: dict[str, Any], source: str = "sample") -> Answer:
    made = {
        "at": "2026-01-01T00:00:00+00:00",
        "by": "1",
        "source": source,
        "sha256": "0" * 64,
        "start_s": 0,
        "duration_s": 86_400,
        "interval_s": 60,
        "seeds": [0],
        "candidates": ["requests-only", "current"],
        "risk": 0.05,
        "currency": "USD",
    }
    advice = Advice.model_validate({"version": 1, "made": made, "rows": [*rows], "notes": ["A note."]})
    drawn = {"at_s": [60.0, 120.0], "cores": [[0.2, 0.6]] * len(rows), "bytes": [[1e8, 1e8]] * len(rows)}
    plain = {"asked": AdviceRequest(source=source).asked, "advice": advice.model_dump(mode="json")}
    files = {"docker": {"docker-update.sh": "x"}}
    return Answer.of_plain({**plain, "histories": drawn, "files": files, "page": "<p>"})


@pytest.fixture
def open_page(monkeypatch, recordings):
    monkeypatch.setattr("traces.load.RECORDED", recordings)

    def page() -> None:
        from lab.explorer import advise_page

        advise_page.page()

    def opened(
        kept: Answer | None = None, query: Mapping[str, str] = MappingProxyType({}), **state: Any
    ) -> AppTest:
        app = AppTest.from_function(page, default_timeout=PATIENCE_S)
        app.query_params.update(query)
        for key, value in ({"advice_answer": ("kept", kept)} if kept else {} | state).items():
            app.session_state[key] = value
        return app.run()

    return opened


def test_with_nothing_chosen_it_says_what_to_do(open_page):
    app = open_page()
    assert not app.exception
    assert "Choose a history and press **Run**" in texts(app)
    assert app.button(key="run").disabled
    app.selectbox(key="advice_source").select("sample").run()
    assert not app.button(key="run").disabled


def test_a_prometheus_needs_its_address(open_page):
    app = open_page()
    app.selectbox(key="advice_source").select("server").run()
    assert app.button(key="run").disabled
    app.text_input(key="advice_url").set_value("http://localhost:9090").run()
    assert not app.button(key="run").disabled


def test_a_failure_is_one_line(open_page):
    app = open_page(failure="http://x: nobody listens there")
    assert len(app.error) == 1
    assert "nobody listens there" in app.error[0].value


def test_a_result_has_the_table_the_verdicts_the_history_and_the_downloads(open_page):
    app = open_page(answer(row("web", "apply"), row("db", "care"), row("old", "leave")))
    assert not app.exception
    shown = html(app)
    for words in ("1 → 0.5 / 2 → none", "– / 512 → 256", ">apply<", ">apply with care<", ">leave alone<"):
        assert words in shown
    assert "It \\*reserves\\* less" in texts(app)
    assert "of the largest of 2 replicas" in texts(app)
    assert "Kubernetes" in next(line.value for line in app.caption if "Not offered" in line.value)
    assert "Not drawn: limit advised \\(there is none\\)" in texts(app)
    app.selectbox(key="advice_container").select_index(1).run()
    app.segmented_control(key="advice_quantity").set_value("Memory").run()
    assert not app.exception
    assert "**Apply with care.**" in texts(app)
    assert "request now, request advised \\(unknown, or left as it is\\)." in texts(app)


def test_figures_have_units_and_no_exponents(open_page):
    large = row("web", "apply")
    large["current"]["memory_limit_bytes"], large["after"] = 15_180 * MIB, outcome(0.02, 12_345.0)
    shown = html(open_page(answer(large)))
    assert "15,180 → 256" in shown
    assert "2 → 12,300" in shown
    assert "Money a day (USD)" in shown


def test_every_form_has_its_title():
    assert set(advise_results.FORMS) == set(forms.FORMS)


def test_another_risk_or_history_says_that_the_result_is_of_before(open_page):
    app = open_page(answer(row("web", "apply")))
    app.selectbox(key="advice_source").select("sample").run()
    assert "press Run" not in texts(app)
    app.slider(key="advice_risk").set_value(1.0).run()
    assert "press Run for an answer to those" in texts(app)


def test_hosts_are_given_with_their_cores_and_the_address_keeps_them(open_page):
    app = open_page(answer(row("web", "apply")))
    app.selectbox(key="advice_source").select("sample").run()
    app.number_input(key="advice_hosts").set_value(2.0).run()
    assert "Give both the number of hosts and the cores of each" in app.error[0].value
    assert app.button(key="run").disabled
    app.number_input(key="advice_host_cores").set_value(4.0).run()
    assert not app.error
    assert "press Run for an answer to those" in texts(app)


def test_the_address_gives_the_choices_and_a_wrong_one_is_passed_over(open_page):
    app = open_page(query={"advice_hosts": "3", "advice_host_cores": "2.5", "advice_source": "sample"})
    assert (app.number_input(key="advice_hosts").value, app.selectbox(key="advice_source").value) == (
        3,
        "sample",
    )
    app = open_page(
        query={"advice_hosts": "1e400", "advice_host_cores": "nan", "advice_source": "/etc/passwd"}
    )
    assert not app.exception
    assert app.number_input(key="advice_hosts").value is None
    assert app.selectbox(key="advice_source").value is None


def test_names_of_others_are_shown_literally_and_the_table_is_bounded(open_page, monkeypatch):
    monkeypatch.setattr(advise_results, "MOST_ROWS", 2)
    app = open_page(answer(*(row(f"<b>{index}</b>", "apply") for index in range(3))))
    assert "&lt;b&gt;1" in html(app)
    assert "<b>1" not in html(app)
    assert "&lt;b&gt;2" not in html(app)
    assert "The first 2 of 3 rows" in texts(app)


def test_the_history_is_drawn_from_its_begin():
    drawn = advise_results.chart(answer(row("web", "apply")), 0, cpu=True).layer[0].data
    assert drawn["at_s"].iloc[0] == 0.0
    assert drawn["used"].iloc[0] == drawn["used"].iloc[1]


def test_lines_are_where_the_limits_are():
    drawn = advise_results.chart(answer(row("web", "apply")), 0, cpu=False).to_dict()
    (levels,) = (data for data in drawn["datasets"].values() if "level" in data[0])
    assert {point["what"]: point["level"] for point in levels} == {"Limit now": 512.0, "Limit advised": 256.0}
