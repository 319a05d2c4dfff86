"""Pictures of results pages are drawn from the tables that the pages print."""

import pandas as pd
import pytest

from lab.runs.page import svg
from studies import pictures
from studies.harness import RESULTS, page, publish

FIDELITY = """\
# Page

## All cells

### validation-step

| load | policy | CPU work done (cores) | Latency p99 (s) |
| --- | --- | --- | --- |
| – | escra | 0.780 / 0.775 (0.775–0.776) ✓ | 0.2 / 0.1 (0.1–0.1) ✗ |
| burst | escra | 0.500 / 0.775 (0.775–0.776) ✗ | – |
"""


def test_a_table_is_found_below_its_heading_only():
    text = "# A\n\n## B\n\nwords\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n\n## C\n\n| c |\n| --- |\n| y |\n"
    assert pictures.table_below(text, "## B").to_dict("records") == [{"a": "x", "b": "1"}]
    assert pictures.table_below(text, "## C").to_dict("records") == [{"c": "y"}]
    assert pictures.table_below(text, "## D").empty


@pytest.mark.parametrize("name", ["containers", "fabric"])
def test_every_figure_with_a_ratio_is_a_point_of_the_picture(name):
    text = (RESULTS / f"{name}.md").read_text()
    chart = pictures.ratios(text).to_dict()
    points = max(chart["datasets"].values(), key=len)
    # The table of an experiment without a ratio has no column of them.
    tables = text.partition("## Not reproduced")[2].partition("\n## ")[2].split("\n\n")
    judged = [
        line
        for table in tables
        if " | Ratio | " in table.partition("\n")[0]
        for line in table.splitlines()
        if line.rstrip("| ").endswith(("reproduced in size", "reproduced in direction", "not reproduced"))
        and " | – | " not in line
    ]
    assert len(points) == len(judged) > 20
    assert {"experiment", "ratio", "verdict"} == set(points[0])


def test_the_picture_of_advice_has_every_set_and_candidate():
    chart = pictures.advice((RESULTS / "advice.md").read_text()).to_dict()
    assert len(chart["hconcat"]) == 4
    _, money, *_ = (chart["datasets"][panel["data"]["name"]] for panel in chart["hconcat"])
    rows = {(row["set"], row["candidate"]): row["value"] for row in money}
    assert rows["all", "requests-only"] == 1
    assert rows["all", "vpa"] == pytest.approx(3772 / 3070)


def test_the_pictures_of_markets_and_schedulers_have_every_known_figure():
    marks = pictures.market((RESULTS / "market.md").read_text()).data
    assert marks.set_index(["variant", "policy"]).loc[("zones_loose_small", "greedy"), "value"] == 1.150
    assert len(marks) == 3 * 24
    page = (RESULTS / "cluster.md").read_text()
    marks = pictures.schedulers(page).layer[1].data
    assert len(marks) == page.count("| yes |") + page.count("| no |")


def test_the_twin_is_drawn_over_the_testbed_in_a_panel_per_quantity():
    chart = pictures.fidelity(FIDELITY)
    assert [panel["title"] for panel in chart.to_dict()["concat"]] == ["CPU work done", "Latency p99"]
    assert svg(chart).startswith("<svg")


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_page_opens_with_its_picture_which_has_marks(name):
    text, picture = (RESULTS / f"{name}.md").read_text(), pictures.PICTURES[name]
    assert text.split("\n\n")[3] == f"![{picture.caption}]({name}.svg)"
    assert (RESULTS / f"{name}.svg").exists()
    rows = [row for data in picture.draw(text).to_dict()["datasets"].values() for row in data]
    assert len(rows) > 5
    assert not [row for row in rows if None in row.values()]


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_a_page_without_rows_is_written_without_its_picture(name, tmp_path, capsys):
    publish(name, page(name, "Title", ["Answer."], ["## Summary", "nothing yet"], ["None."]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.md"]
    assert (tmp_path / f"{name}.md").read_text().split("\n\n")[2:4] == ["Answer.", "## Summary"]
    assert f"{name} has no picture: no table" in "".join(capsys.readouterr())


def test_every_results_page_has_a_picture():
    assert [page.name for page in RESULTS.glob("*.md") if ".svg)" not in page.read_text()] == []


def test_a_figure_is_the_first_number_of_a_cell():
    cells = pictures._number(pd.Series(["0.1 ± &lt; 0.1", "> 54.308", "1,067", "–", "-3.5%"]))
    assert cells.tolist()[:3] + cells.tolist()[4:] == [0.1, 54.308, 1067.0, -3.5]
    assert cells.isna().tolist() == [False, False, False, True, False]
