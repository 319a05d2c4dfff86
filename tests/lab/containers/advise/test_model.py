"""The advice's file is read back, and a damaged or hostile one is refused in one line."""

import json

import pytest

from lab.containers.advise import model
from tests.lab.containers.advise.histories import advice, row
from twinbed import ScenarioError


def test_an_advice_reads_back(tmp_path):
    path = tmp_path / "advice.json"
    own = advice(row("a/b/c"), row("x'y\n/`$(id)`/\N{SNOWMAN}"))
    model.write(own, path)
    assert model.read(path) == own


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], "advice.json"),
        (lambda text: "container,cpu", "; make an advice with twinbed advise --out advice.json"),
        (lambda text: "[]", "not an advice of version 1"),
        (lambda text: "[" * 100_000, "advice.json"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "not an advice of version 1"),
        (lambda text: text.replace("268435456", "-1"), "memory_request_bytes"),
        (lambda text: text.replace('"none"', '"no"'), "cpu_limit_cores"),
        (lambda text: text.replace('"replicas": 2', '"replicas": 0'), "replicas"),
        (lambda text: text.replace('"policy"', '"polisy"'), "did you mean 'policy'?"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, damage, words):
    path = tmp_path / "advice.json"
    path.write_text(damage(model.text(advice())))
    with pytest.raises(ScenarioError) as refused:
        model.read(path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_two_rows_of_one_name_are_refused(tmp_path):
    path = tmp_path / "advice.json"
    data = json.loads(model.text(advice()))
    path.write_text(json.dumps(data | {"rows": data["rows"] * 2}))
    with pytest.raises(ScenarioError, match="appears 2 times"):
        model.read(path)
