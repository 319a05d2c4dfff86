"""The examples of docs/how-to/describe-your-application.md do what the page says."""

import re
from pathlib import Path

import pytest

from lab.ask import scenario, shipped
from lab.cli.reference_pages import ROOT
from lab.containers.input.services.application import load_app
from lab.containers.input.services.graph import compile_graph, mean_cores

PAGE = (ROOT / "docs" / "how-to" / "describe-your-application.md").read_text(encoding="utf-8")
EXAMPLE, QUESTION = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def beside_the_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small_shop.yaml").write_text(EXAMPLE, encoding="utf-8")


def test_the_example_is_the_shop_of_five_containers_that_it_is_called(beside_the_example):
    compiled = compile_graph(load_app("small_shop.yaml"))
    assert compiled.names == ("web-1", "web-2", "offers", "cache", "database")
    assert (mean_cores(compiled, 200.0) < compiled.threads).all()


def test_the_question_about_it_is_a_scenario_that_finds_it_beside_itself(beside_the_example, tmp_path):
    Path("question.yaml").write_text(QUESTION, encoding="utf-8")
    asked = scenario.load(tmp_path / "question.yaml").services
    assert load_app(asked.app).name == "small_shop"
    assert asked.arrivals.rate_rps == 200


def test_the_page_names_every_application_that_ships():
    assert [name for name in shipped.names("application") if f"`{name}`" not in PAGE] == []


def test_the_python_example_prints_every_container(beside_the_example, capsys):
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(code, "the page", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) == 5
