"""`twinbed report`: either runs or experiments."""

import json

import pytest

from tests.studies import tiny_experiment


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    return tiny_experiment.install(monkeypatch, tmp_path)


@pytest.mark.slow
def test_an_experiment_is_run_and_put_beside_the_source(twinbed, tiny):
    ended = twinbed("report", "--experiment", "e1")
    assert ended.code == 0
    assert "A bound of the source" in ended.out
    assert "reproduced in size" in ended.out
    assert "It is tiny." in ended.out


def test_for_machines_each_figure_is_a_record(twinbed, tiny):
    rows = json.loads(twinbed("report", "--experiment", "E1", "--format", "json").out)["rows"]
    assert [row["verdict"] for row in rows] == ["–", "reproduced in size"]
    assert rows[0]["source"] == "–"
    assert rows[0]["ours"] < 0


@pytest.mark.slow
def test_sensitivity_shows_each_change(twinbed, tiny):
    ended = twinbed("report", "--experiment", "E1", "--sensitivity", "--format", "csv")
    assert [line.split(",")[0] for line in ended.out.splitlines()] == [
        "change",
        "source",
        "as declared",
        "kappa=0.2",
    ]


@pytest.mark.slow
def test_the_page_is_written_beside_the_table(twinbed, tiny, tmp_path):
    path = tmp_path / "e1.html"
    ended = twinbed("report", "--experiment", "E1", "--html", path)
    assert "A bound of the source" in ended.out
    assert "A tiny experiment" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "give either runs or --experiment"),
        (["some-run", "--experiment", "E1"], "give either runs or --experiment"),
        (["some-run", "--sensitivity"], "--sensitivity: only with --experiment"),
        (["--experiment", "E1x"], "did you mean 'E1'?"),
    ],
)
def test_what_cannot_be_reported_is_refused(twinbed, tiny, arguments, problem):
    assert problem in twinbed("report", *arguments).refused
