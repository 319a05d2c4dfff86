"""Code of a user's own: how a text names it, what it is given, and what is said when it is wrong."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbed import ScenarioError, own

POLICY = '''
"""A spot policy."""
class Mine:
    """Always the same."""
    def __init__(self, terms, alpha=0.3, zones=(1, 2), *, word="a"):
        self.alpha = alpha
    def on_step(self, state):
        return state / self.alpha
class Bare:
    """Nothing."""
class Scheduler:
    at_events = mixes_types = False
    def __init__(self, cluster, seed, quantum): pass
    def on_round(self, state): return None
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    return path


def test_a_class_of_a_file_is_found_with_its_literal_arguments(file):
    mine = own.find(f"{file}:Mine(word='b', alpha=2, zones=[3, -1])", "policies", "spot_policies")
    assert (mine.group, mine.name, mine.about) == ("spot_policies", "Mine", "Always the same.")
    assert mine.parameters == {"alpha": 2, "zones": (3, -1), "word": "b"}
    assert mine.label == "mine.py:Mine(alpha=2, word='b', zones=(3, -1))"
    assert own.find(mine.text, "spot_policies") == mine == pickle.loads(pickle.dumps(mine))
    assert mine.make(None).on_step(4) == 2.0


def test_what_ships_is_not_of_ones_own():
    assert own.find("static:factor=1.5", "policies") is None
    assert own.find("escra", "policies") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}:Mine(alpha=__import__('os').getcwd())", "arguments are literals"),
        ("{}:Mine(alpha=open)", "arguments are literals"),
        ("{}:Mine(3)", "arguments are written KEY=VALUE"),
        ("{}:Mine(**{{}})", "arguments are written KEY=VALUE"),
        ("{}:Mine(alpha=1)(2)", "KEY=VALUE"),
        ("{}:Mine(alpha=1, alpha=2)", "each key once"),
        ("{}:Mine(alpha={{1}})", "is no number, text"),
        ("{}:Mine(alpah=1)", "no parameter 'alpah'; known: alpha"),
        ("{}:Mine(terms=1)", "no parameter 'terms'"),
        ("{}:Nine", "no class Nine; there is Mine"),
        ("{}:Bare", "Bare: is no spot policy: a spot policy has on_step"),
        ("{}:Scheduler", "is a scheduler, and a spot policy is needed here"),
        ("{}.py:Mine", "No such file"),
    ],
)
def test_a_wrong_text_is_refused_in_one_line_that_names_the_file(file, text, said):
    with pytest.raises(ScenarioError) as caught:
        own.find(text.format(file), "spot_policies")
    assert said in str(caught.value)
    assert "mine.py" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("class Mine(:", "bad.py: line 1: "),
        ("import no_such_pack", "ModuleNotFoundError: No module named 'no_such_pack' (line 1 of bad.py)"),
        ("x = 1\ny = x / 0", "ZeroDivisionError: division by zero (line 2 of bad.py)"),
        ("class Mine:\n def on_round(self, state): ...", "it lacks wake_s, remarks, at_events, mixes_types"),
    ],
)
def test_a_file_that_does_not_run_is_one_line(tmp_path, code, said):
    path = tmp_path / "bad.py"
    path.write_text(code)
    with pytest.raises(ScenarioError) as caught:
        own.find(f"{path}:Mine", "schedulers")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_error_of_its_code_names_class_method_and_line(file):
    mine = own.find(f"{file}:Mine(alpha=0)", "spot_policies").make(None)
    with pytest.raises(own.OwnCodeError, match=r"mine\.py: Mine: on_step: ZeroDiv.* \(line 8 of mine"):
        mine.on_step(1)


def test_an_answer_of_nothing_is_an_error(file):
    file.write_text(POLICY.replace("return state / self.alpha", "pass"))
    with pytest.raises(ScenarioError, match="on_step: returned None"):
        own.find(f"{file}:Mine", "spot_policies").make(None).on_step(1)


def test_code_that_changes_after_it_was_named_is_not_run(file):
    mine = own.find(f"{file}:Mine", "spot_policies")
    file.write_text(POLICY + "# changed\n")
    assert own.find(f"{file}:Mine", "spot_policies").sha256 != mine.sha256
    with pytest.raises(ScenarioError, match="changed while it was used"):
        mine.make(None)


def test_nothing_runs_where_it_is_forbidden(tmp_path):
    path = tmp_path / "trap.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with own.forbidden("not here"), pytest.raises(ScenarioError, match="not here"):
        own.find(f"{path}:Mine", "policies")
    assert not (tmp_path / "ran").exists()


def test_entry_points_are_found_by_name_and_hashed_with_their_package(tmp_path, monkeypatch):
    (tmp_path / "own_pack").mkdir()
    (tmp_path / "own_pack" / "__init__.py").write_text(POLICY)
    (tmp_path / "own_pack-1.dist-info").mkdir()
    (tmp_path / "own_pack-1.dist-info" / "METADATA").write_text("Name: own-pack\nVersion: 1\n")
    entries = "[twinbed.spot_policies]\nmine = own_pack:Mine\n"
    (tmp_path / "own_pack-1.dist-info" / "entry_points.txt").write_text(entries)
    monkeypatch.syspath_prepend(tmp_path)
    for cached in (own._entry_points, own._package_sha256):
        cached.cache_clear()
        monkeypatch.setattr(own, cached.__name__, cached.__wrapped__)
    mine = own.find("mine(alpha=2)", "spot_policies")
    assert (mine.text, mine.name, mine.place) == ("mine(alpha=2)", "mine", "")
    assert [entry.name for entry in own.installed()] == ["mine"]
    assert mine.make(None).on_step(4) == 2.0
    (tmp_path / "own_pack" / "more.py").write_text("x = 1\n")
    assert own.find("mine", "spot_policies").sha256 != mine.sha256


WORD = st.text("abc=.-", max_size=5)


@given(st.lists(st.one_of(WORD, st.builds(lambda word: f"f({word!r}, [{word!r}, 1])", WORD)), min_size=1))
def test_a_list_is_split_where_no_bracket_and_no_quote_is_open(parts):
    assert own.split(",".join(parts)) == [part.strip() for part in parts]
