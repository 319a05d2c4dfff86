"""The controller's deployment file: what it means, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ask.guard import MOST_BYTES
from lab.containers.input.deployment import load, schema_json
from testbed.containers.remote.deployment import Placed, Watch
from twinbed import ScenarioError

GOOD = """\
policy: escra:gamma=0.1
applications:
  - name: shop
    cpu_limit_cores: 4
    memory_limit_bytes: 2147483648
    containers:
      - {name: web, agent: h1, command: python web.py --port 80, env: {WORKERS: 2}}
      - {name: db, agent: h2, attach: /docker/abc, peak_cores: 1.5, peak_bytes: 1000}
  - name: batch
    cpu_limit_cores: 1
    memory_limit_bytes: 4096
    watch:
      - {agent: h1, parent: /kubepods/burstable, pattern: "pod*"}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(text)
    return path


def test_a_file_becomes_a_deployment_and_an_allocator(tmp_path):
    plan = load(write(tmp_path, GOOD))
    web, db = plan.deployment.containers
    assert web == Placed("web", "h1", 0, ("python", "web.py", "--port", "80"), {"WORKERS": "2"})
    assert (db.attach, db.peak_cores, db.peak_bytes) == ({"": "/docker/abc"}, 1.5, 1000)
    assert plan.deployment.watches == (Watch("h1", 1, "/kubepods/burstable", "pod*"),)
    assert plan.deployment.agents == {"h1", "h2"}
    assert [each.cpu_limit_cores for each in plan.deployment.applications] == [4.0, 1.0]
    assert plan.allocator.name == "escra"


def test_containers_of_other_engines_are_named(tmp_path):
    text = GOOD.replace("attach: /docker/abc", "container: compose:shop/db")
    plan = load(write(tmp_path, text))
    assert [each.name for each in plan.deployment.containers] == ["web"]
    assert plan.deployment.watches[1] == Watch("h2", 0, "compose:shop/db", "*", 1.5, 1000)


def test_the_schema_is_published_as_it_is():
    root = Path(__file__).parents[4]
    assert (root / "docs/reference/deployment.schema.json").read_text() == schema_json()
    assert json.loads(schema_json())["title"] == "DeploymentFile"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: web", "name: web;rm -rf /", r"containers\.0\.name"),
        ("name: web", "name: $(id)", r"containers\.0\.name"),
        ("name: web", "name: ../web", r"containers\.0\.name"),
        ("agent: h1, command", "agent: h1/.., command", r"containers\.0\.agent"),
        ("/docker/abc", "/docker/../../etc", r"containers\.1\.attach: expected a path"),
        ("/docker/abc", "docker/abc", r"containers\.1\.attach: expected a path"),
        ("/docker/abc", "/", r"containers\.1\.attach: expected a path"),
        ("/docker/abc", '"/docker/\\0abc"', r"containers\.1\.attach: has the character '\\x00'"),
        ("/kubepods/burstable", "/kubepods/..", r"watch\.0\.parent: expected a path"),
        ("attach: /docker/abc", "attach: /docker/abc, command: x", "either command or attach"),
        ("attach: /docker/abc, ", "", "either command or attach"),
        ("attach: /docker/abc", "container: /docker/abc", r"containers\.1\.container: .*give it as attach"),
        ("attach: /docker/abc", "container: lxc:db", r"containers\.1\.container: container 'lxc:db'"),
        ("attach: /docker/abc", "container: 'docker:a?b=c'", "is no name for docker"),
        ("attach: /docker/abc", "container: compose:db", "is no name for compose"),
        ("attach: /docker/abc", "container: docker:db, command: x", "either command or attach or container"),
        ("name: db", "name: web", "container web is given twice"),
        ("name: batch", "name: shop", "application shop is given twice"),
        ("cpu_limit_cores: 4", "cpu_limit_cores: 0", r"applications\.0\.cpu_limit_cores"),
        ("cpu_limit_cores: 4", "cpu_limit_cores: .nan", r"applications\.0\.cpu_limit_cores"),
        ("cpu_limit_cores: 4", "cpu_limit_cores: .inf", r"applications\.0\.cpu_limit_cores"),
        ("memory_limit_bytes: 4096", "memory_limit_bytes: 4095", r"applications\.1\.memory_limit_bytes"),
        ("escra:gamma=0.1", "escr", "no policy 'escr'"),
        ("policy:", "polcy:", "did you mean 'policy'"),
        ("name: shop", "name: &a shop\n    <<: *a", "aliases"),
        ("name: shop", "name: shop\n    name: shop", "given twice"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line_that_names_file_and_key(tmp_path, old, new, said):
    with pytest.raises(ScenarioError, match=said) as refused:
        load(write(tmp_path, GOOD.replace(old, new)))
    assert "shop.yaml: " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bomb_a_deep_nest_and_a_huge_file_are_refused_unread(tmp_path):
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
    with pytest.raises(ScenarioError, match="line 2: aliases"):
        load(write(tmp_path, f"a0: &a0 x\n{levels}"))
    with pytest.raises(ScenarioError, match="nested deeper"):
        load(write(tmp_path, "a: " + "[" * 10_000))
    with pytest.raises(ScenarioError, match="larger than"):
        load(write(tmp_path, GOOD + "#" * MOST_BYTES))
    with pytest.raises(ScenarioError, match=r"nothing\.yaml: No such file or directory"):
        load(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match=r"binary\.yaml: not UTF-8 text \(byte 0\)"):
        load(tmp_path / "binary.yaml")


@given(text=st.text(max_size=200))
@settings(max_examples=100)
def test_any_other_text_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(ScenarioError) as refused:
        load(path)
    assert "\n" not in str(refused.value)
