"""`python -m studies`: one command line for every page, experiment and measurement."""

import json
import re
from pkgutil import resolve_name

import pytest

from studies import harness
from studies.__main__ import OPTIONS, main
from studies.experiments.catalogue import CLOUD, EXPERIMENTS
from studies.experiments.page import PAGES
from studies.fidelity_containers.page import CODE as CONTAINERS
from studies.fidelity_fabric.applications import CODE as APPLICATIONS
from studies.fidelity_fabric.campaigns import CODE as FABRIC
from studies.harness import Asked, TimeIsUpError, clock, store_of_code
from studies.tasks import TASKS, task
from tests.studies import tiny_experiment
from twinbed import InvariantError


@pytest.fixture
def tiny(monkeypatch, tmp_path, capsys):
    """A function that runs the command on the tiny experiment E1; it returns standard output."""
    tiny_experiment.install(monkeypatch, tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        assert main([*arguments, "--store", str(tmp_path / "runs")]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_an_experiment_is_run_and_compared_with_the_source(tiny):
    text = tiny("e1")
    assert "A bound of the source" in text
    assert "reproduced in size" in text
    assert "It is tiny." in text


def test_for_machines_a_figure_is_a_record(tiny):
    rows = json.loads(tiny("E1", "--format", "json"))["rows"]
    assert [row["verdict"] for row in rows] == ["–", "reproduced in size"]
    assert rows[0]["source"] == "–"
    assert rows[0]["ours"] < 0


@pytest.mark.slow
def test_sensitivity_shows_every_change_and_the_page_is_written_beside_the_table(tiny, tmp_path):
    path = tmp_path / "e1.html"
    text = tiny("E1", "--sensitivity", "--format", "csv", "--html", str(path))
    changes = [line.split(",")[0] for line in text.splitlines()]
    assert changes == ["change", "source", "as declared", "kappa=0.2"]
    assert "A tiny experiment" in path.read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["E1x"], "did you mean 'E1'?"),
        (["E1", "--data", "x"], "E1: takes no --data"),
        (["cloud", "--format", "csv"], "cloud: takes no --format"),
        *(
            ([name], f"{name}: public data are needed; give --data or set TWINBED_DATA")
            for name in ("recommenders", "goodput", "sharing", "cluster", "advice", "market", "prices")
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, problem, capsys, monkeypatch):
    monkeypatch.delenv("TWINBED_DATA", raising=False)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1


def test_the_list_has_a_line_for_every_task_and_experiment(capsys):
    assert main(["--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*TASKS, *EXPERIMENTS]


@pytest.mark.parametrize("name", TASKS)
def test_a_task_takes_options_that_there_are_and_has_a_function(name):
    assert set(task(name)[1].options) <= {settings.get("dest", key) for key, settings in OPTIONS.items()} | {
        "page_only"
    }
    assert callable(resolve_name(TASKS[name].function))


def test_public_data_come_from_the_option_or_the_variable(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("studies.cloud.recommenders.make", lambda given: asked.append(given.data) or 0)
    monkeypatch.setenv("TWINBED_DATA", str(tmp_path))
    assert main(["recommenders"]) == main(["recommenders", "--data", "elsewhere"]) == 0
    assert [str(folder) for folder in asked] == [str(tmp_path), "elsewhere"]


@pytest.mark.parametrize(
    "parts", [*(page.code for page in PAGES.values()), CONTAINERS, APPLICATIONS, FABRIC], ids=str
)
def test_a_store_belongs_to_code_that_exists(parts, monkeypatch, tmp_path):
    monkeypatch.setattr(harness, "STORES", tmp_path)
    store = store_of_code("page", parts)
    assert store == store_of_code("page", parts)
    with pytest.raises(InvariantError, match="no_such_folder"):
        store_of_code("page", (*parts, "no_such_folder"))


def test_time_is_up_when_the_minutes_are_over():
    clock(Asked().minutes)("label", 0.5)
    with pytest.raises(TimeIsUpError, match="0 minutes are over"):
        clock(0.0)()


@pytest.mark.parametrize("name", ["containers", "requests-only", "fabric", "cloud"])
def test_the_committed_page_holds_the_prose_of_its_definitions(name):
    text = (harness.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    for item in (CLOUD if name == "cloud" else PAGES[name].experiments).values():
        for paragraph in (f"# {item.name}: {item.title}", *item.discussion, item.method):
            assert paragraph in text, paragraph


def test_nothing_else_imports_the_studies():
    """import-linter proves it for the packages; benchmarks, the explorer's entry and other tests are none."""
    root = harness.ROOT
    files = [root / "app.py", *(root / "benchmarks").rglob("*.py"), *(root / "tests").rglob("*.py")]
    others = [file for file in files if not file.is_relative_to(root / "tests" / "studies")]
    assert not [file for file in others if re.search(r"^\s*(from|import) studies", file.read_text(), re.M)]
