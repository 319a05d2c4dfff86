"""The HTML report: complete, self-contained, and safe whatever names a trace brings."""

import base64
import re
from html.parser import HTMLParser

import pytest

from lab.charts.report import totals
from lab.containers.kind import Containers
from lab.runs.report import document
from lab.runs.store import RunStore
from tests.lab.sample_runs import publish


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    return [publish(store, "escra", kills=(0.0, 3.0)), publish(store, "static:factor=1.5", spec={"own": 2.0})]


@pytest.fixture(scope="module")
def page(runs):
    return document(runs)


class References(HTMLParser):
    """Everything that a browser would fetch, run or fail to close."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.fetched += [value for key, value in attrs if key in ("src", "href", "action", "data")]


@pytest.mark.slow
def test_the_page_fetches_nothing_and_runs_nothing(page):
    found = References()
    found.feed(page)
    assert all(each.startswith("data:image/svg+xml;base64,") for each in found.fetched)
    assert not found.tags & {"script", "link", "iframe", "object"}
    assert "default-src 'none'" in page


def test_the_page_has_the_comparison_the_notes_the_parameters_and_the_run_ids(page, runs):
    wanted = ["CPU slack p50 (cores)", "A note on the data.", "Price: 0.031611 USD", "upsilon"]
    for text in wanted + [run.id for run in runs]:
        assert text in page
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert (headings[0], headings[-4], headings[-1]) == ("Comparison", "Conditions", "Runs")
    assert '<ul class="remarks"><li>escra had containers killed for memory' in page


def test_every_table_has_a_head_and_as_many_cells_in_each_line(page):
    heads = []
    for table in re.findall(r"<table>.*?</table>", page, re.S):
        cells = [re.findall(r"<t[hd](?: [^>]*)?>(.*?)</t[hd]>", line) for line in table.split("</tr>")[:-1]]
        assert {len(line) for line in cells} == {len(cells[0])}
        heads.append(cells[0])
        if heads[-1][0] == "Key":
            assert ["own", "", "2.0"] in cells
    assert heads[-4:-1] == [
        ["Key", "Value 1", "Value 2"],
        ["Parameter", "Value", "Unit", "Source"],
        ["Figure", "Unit", "Definition"],
    ]


def test_the_charts_are_drawn_and_name_the_policies(page):
    images = [base64.b64decode(each).decode() for each in re.findall(r"svg\+xml;base64,([^\"]+)\"", page)]
    assert len(images) == 3
    assert all("<svg" in each and "Escra" in each and 'fill="white"' in each for each in images)
    # A description of every mark would make the page three times as long.
    assert not any('aria-roledescription="line mark"' in each for each in images)
    clips = [re.findall(r'<clipPath id="(\w+)"', each) for each in images]
    assert any(clips)
    for drawn, names in zip(images, clips, strict=True):
        assert names == [f"clip{number}" for number in range(len(names))]
        assert set(re.findall(r"url\(#(\w+)\)", drawn)) == set(names)


@pytest.mark.slow
def test_the_same_runs_give_the_same_page(page, runs):
    assert document(runs) == page


@pytest.mark.slow
def test_text_from_files_stays_text(tmp_path):
    run = publish(RunStore(tmp_path), notes=("<script>alert(1)</script>",))
    assert "<script" not in document([run])


@pytest.mark.slow
def test_of_several_seeds_the_table_shows_the_mean_and_the_charts_one(tmp_path):
    store = RunStore(tmp_path)
    page = document([publish(store, seed=seed) for seed in (0, 1)])
    assert "1.000 ± 0.000" in page
    said = "The charts are of 1 of the 2 runs, of seed 0 alone. The comparison is of all."
    assert said in page
    assert "The charts are of" not in document([publish(store)])


def test_the_charts_of_all_policies_are_of_the_same_seed(tmp_path, monkeypatch):
    store, drawn = RunStore(tmp_path), []
    monkeypatch.setattr(Containers, "charts", lambda _kind, runs: drawn.extend(runs) or [])
    order = [("escra", 2), ("static", 0), ("escra", 1), ("static", 1)]
    document([publish(store, policy, seed=seed) for policy, seed in order])
    assert [(run.policy, run.seed) for run in drawn] == [("escra", 1), ("static", 1)]


@pytest.mark.slow
def test_durations_are_in_units_that_people_read_and_what_is_not_set_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(Containers, "notes", lambda _kind, _runs: [])
    metrics = {"lateness_p50_s": 0.0123, "lateness_p99_s": 15_180.0}
    page = document([publish(RunStore(tmp_path), metrics=metrics, spec={"engine": {"most": None}})])
    lines = re.sub(r"<[^>]+>", " ", page.replace("</tr>", "\n"))
    assert re.search(r"Delayed work p50 \(ms\) +12\b", lines)
    assert re.search(r"Delayed work p99 \(h\) +4.22\b", lines)
    assert "engine.most" not in page
    assert "<tr><th>Key</th><th>Value</th></tr>" in page
    assert "Assumptions" not in page


def test_totals_are_means_over_stretches_of_all_containers_together(runs):
    frame = totals(runs[0], stretches=3)
    # 40 periods in stretches of 14: two containers with 1 core and 1 GiB each, half of it used.
    assert list(frame["at_s"]) == pytest.approx([0.0, 1.4, 2.8])
    wanted = {"reserved_cores": 2.0, "used_cores": 1.0, "reserved_gib": 2.0, "used_gib": 1.0}
    for column, value in wanted.items():
        assert list(frame[column]) == pytest.approx([value] * 3)
