import math

import pytest

from lab.containers.validate import present
from lab.containers.validate.rule import RULE, Verdict
from lab.runs.formats import json as as_json
from lab.runs.formats import markdown, table
from studies.fidelity_containers import page
from studies.fidelity_containers.loop_figures import LoopFigures
from studies.fidelity_containers.page import document
from tests.lab.sample_cells import MANIFEST, sample_cell

AGREE = {"latency_p50_s": 0.010, "latency_p99_s": 0.1, "throughput_rps": 50.0, "throttled_share": 0.1}
OFF = AGREE | {"latency_p50_s": 0.020}
LOOP = LoopFigures(0.999, 4e-4, 0.04, 5e-5, 300, 2e-4, 1000, 0)


@pytest.fixture
def cells(tmp_path):
    slack = {"cpu_slack_p50_cores": 0.1, "oom_kills": 0.0}
    return [
        sample_cell(tmp_path / "a", "escra", twin=OFF, testbed=AGREE | slack, vary="burst"),
        sample_cell(
            tmp_path / "b",
            "static:factor=1.5",
            twin=AGREE,
            testbed=AGREE | slack | {"cpu_slack_p50_cores": 0.5},
            vary="burst",
        ),
    ]


def test_a_cell_judges_every_quantity_of_its_runs(cells):
    verdicts = {item.quantity.key: item.verdict for item in cells[0].judgements}
    assert verdicts["latency_p50_s"] is Verdict.OUTSIDE
    assert verdicts["work_cores"] is Verdict.NONE
    assert verdicts["throughput_rps"] is Verdict.LIMIT
    assert not cells[0].agrees
    assert cells[1].agrees


def test_the_table_has_a_line_per_comparison_and_says_the_rule(cells):
    shown = present.result(cells)
    assert len(shown.rows) == 12
    assert RULE in shown.notes
    assert shown.notes[0].startswith("11 of 12 comparisons agree")
    assert "1 of 2 cells agree in everything" in shown.notes[0]
    for form in (table, markdown, as_json):
        assert "outside" in form(shown)


def test_the_worst_come_first_and_what_agrees_is_not_among_them(cells):
    ((worst, judgement),) = present.worst(cells, 5)
    assert worst is cells[0]
    assert judgement.quantity.key == "latency_p50_s"
    # 10 ms off, where 15 % of 10 ms are allowed.
    assert judgement.badness == pytest.approx(10 / 1.5)


def test_the_page_shows_every_cell_the_bad_ones_too(cells):
    text = document(cells, LOOP, 1200.0)
    assert "| Latency p50 | 15 % | 1 of 2 | 50% | 100% | missed |" in text
    assert "0.0200 / 0.0100 (0.0100–0.0100) ✗" in text
    assert "made in 20 minutes" in text
    assert "Linux 6, cgroup v1" in text
    assert RULE in text
    assert text.count("\n| kind: burst") >= 2


def test_the_page_puts_escra_beside_the_others_on_bursts(cells):
    text = document(cells, LOOP, 1200.0)
    assert "CPU slack p50 is lower by 80% and throughput changes by +0.0%" in text
    assert "reached." in text


def test_the_page_has_the_loops_figures_with_their_command_or_none_of_them(cells):
    text = document(cells, LOOP, 0.0)
    assert "99.90%" in text
    assert "`python -m studies control-loop`" in text
    assert "control loop on this kernel" not in document(cells, None, 0.0)


def test_nothing_to_compare_is_said(tmp_path):
    nothing = dict.fromkeys(AGREE, math.nan) | {"memory_slack_p50_mib": math.nan}
    cell = sample_cell(tmp_path, twin=nothing, testbed=nothing)
    counted = [item for item in cell.judgements if item.verdict.counts]
    assert [item.quantity.key for item in counted] == ["cpu_slack_mean_cores"]
    assert list(page._worst([])) == ["## The worst cells", "Nothing was compared: no quantity has a value."]


def test_runs_that_had_company_are_said_to_have_had_it(cells, monkeypatch):
    assert list(present.company(cells)) == []
    monkeypatch.setitem(MANIFEST, "others_cores", 1.25)
    assert next(iter(present.company(cells))).startswith("6 of 6 runs on the testbed had company")
    assert "1.20 at most" in document(cells, None, 0.0)


def test_a_page_of_a_part_says_what_is_not_in_it(cells):
    text = document(cells, None, 0.0, ["hipster_shop"])
    assert "**This is a part of the matrix: hipster_shop. Not made: step, on_off, ddp, escra_default" in text
    assert "a part of the matrix" not in document(cells, LOOP, 0.0)


def test_the_page_that_ships_takes_the_explorers_comparisons_with_it(cells, tmp_path, monkeypatch):
    text = document(cells, LOOP, 60.0)
    shipped = tmp_path / "shipped.csv"
    monkeypatch.setattr(page.shipped_validation, "FILE", shipped)
    page.publish(text, tmp_path)
    assert not shipped.exists()
    monkeypatch.setattr(page.harness, "RESULTS", tmp_path)
    page.publish(text, tmp_path)
    found = page.shipped_validation.comparisons()
    assert len(found) == len(page.shipped_validation.of_page(text)) > 0
