"""Text from users becomes plain data within limits, or is refused in one line that names line or key."""

import os
import tracemalloc

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab.ask import calibration
from lab.ask.guard import MOST_BYTES, MOST_DEPTH, parse, parse_json, parse_toml, read_keys
from lab.ask.scenario import load
from lab.cloud.input import job_file
from lab.containers.input import deployment, recording
from lab.containers.input.services.application import load_app
from lab.fabric.real import plan_file
from twinbed import ScenarioError

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 7)
)
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)
)


def refused(read, text):
    with pytest.raises(ScenarioError) as caught:
        read(text, "mine")
    message = str(caught.value)
    assert message.startswith("mine: ")
    assert "\n" not in message
    assert len(message) < 300
    return message.removeprefix("mine: ")


def test_plain_yaml_is_what_pyyaml_makes_of_it():
    text = "a: &x {b: [1, -2.5, 0x10, yes, ~, 2024-02-29, 'é\U0001f600']}\nc: {<<: *x, d: 1e-3}\ne: *x\n"
    assert parse(text, "mine") == yaml.safe_load(text) | {"c": yaml.safe_load(text)["c"] | {"d": 1e-3}}
    assert parse("", "mine") is None


def test_merged_keys_give_way_to_own_keys_and_to_tables_before_them():
    text = "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {x: 0, <<: [*a, *b]}\nd: {<<: [*a, *b]}\n"
    assert parse(text, "mine") == yaml.safe_load(text)


def test_a_value_and_its_alias_share_nothing():
    data = parse("a: &x [1]\nb: *x\n", "mine")
    data["a"].append(2)
    assert data["b"] == [1]


@pytest.mark.parametrize("text", ["1:30", "-1:30", "10:20:30.5"])
def test_a_text_with_colons_is_no_number_to_the_base_of_60(text):
    assert parse(text, "mine") == text
    assert parse(f"[{text}, 2]", "mine") == [text, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "more than 100,000 values, an alias counted as what it stands for"),
        (MERGES, "more than 100,000 values"),
        ("a: &a [*a]", "line 1: nested deeper than 32 levels"),
        ("a: &a {<<: *a}", "line 1: nested deeper than 32 levels"),
        ("[" * 100_000, "line 1: nested deeper than 32 levels"),
        ("? " * 5_000, "nested deeper than 32 levels"),
        ("a: 1\nb: {c: 1,\n c: 2}", "line 3: key 'c' is given twice"),
        ("a: 1\n'a': 2", "line 2: key 'a' is given twice"),
        ("1: a", "line 1: the key 1 is not text; put it into quotes"),
        ("on: a", "line 1: the key True is not text"),
        ("? [a]\n: b", "line 1: the key ['a'] is not text"),
        ("a: " + "9" * 5_000, "line 1: a whole number of 5000 characters"),
        ("a: 0x" + "f" * 380, "a: "),
        ("a: {b: [0, 9223372036854775808]}", "a.b.1: 9223372036854775808 is too large; numbers stay below"),
        ("a: -1e300", "a: -1e+300 is too large"),
        ("a: 1e308", "a: 1e+308 is too large"),
        ("a: 1e999", "a: inf is not a finite number"),
        ("a: .nan", "a: nan is not a finite number"),
        ("a: {b: -.inf}", "a.b: -inf is not a finite number"),
        ("a: 1\nb: 2023-99-99", "line 2: '2023-99-99' is not a date; put it into quotes if it is text"),
        ("a: !!int ''", "line 1: '' is not a whole number"),
        ("a: !!bool 7", "line 1: '7' is not true or false"),
        ("a: !!timestamp x", "line 1: 'x' is not a date"),
        ("a: !!set {b}", "line 1: the tag !!set has no meaning here; leave it out"),
        ("a: !!map b", "line 1: the tag !!map has no meaning here"),
        ("a: !!python/object/apply:os.system [true]", "line 1: the tag !!python/object/apply:os.system has"),
        ("<<: 1", "line 1: `<<` takes a mapping"),
        ('a: "\\0"', "a: has the character '\\x00'; leave it out"),
        ('a: {b: "\\ud800"}', "a.b: has the character '\\ud800'; leave it out"),
        ('"\\0": 1', "has the character '\\x00'"),
        ("a: b: c", "line 1: not YAML: mapping values are not allowed here; a text that holds a colon and"),
        ("a: \x00", "not YAML: unacceptable character"),
        ("--- 1\n--- 2", "line 2: not YAML: but found another document"),
    ],
)
def test_yaml_beyond_its_limits_is_refused(text, said):
    assert said in refused(parse, text)


def test_an_alias_bomb_takes_little_memory():
    tracemalloc.start()
    refused(parse, BOMB)
    assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    tracemalloc.stop()


@given(st.text(st.sampled_from("ab: -[]{}&*!|>'\"\n#,?<0123456789.e~"), max_size=60))
def test_any_text_is_data_or_one_line(text):
    for read in (parse, parse_json, parse_toml):
        said = ""
        try:
            read(text, "mine")
        except ScenarioError as error:
            said = str(error)
        assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "not JSON: key 'a' is given twice"),
        ('{"a": ' + "[" * 100_000, "nested deeper than 32 levels"),
        ("[" * 40 + "]" * 40, "nested deeper than 32 levels"),
        ('{"a": ' + "9" * 5_000 + "}", "a: inf is not a finite number"),
        ('{"a": [NaN]}', "a.0: nan is not a finite number"),
        ('{"a": 1e400}', "a: inf is not a finite number"),
        ('{"a": "\\ud800"}', "a: has the character '\\ud800'"),
        ("{", "not JSON: "),
        (b"\xff", "not JSON: "),
    ],
)
def test_json_beyond_its_limits_is_refused(text, said):
    assert said in refused(parse_json, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = 1\na = 2", "not a TOML file: "),
        ("a = " + "[" * 100_000, "nested deeper than 32 levels"),
        (f"{'.'.join('a' * 130_000)} = 1", "nested deeper than 32 levels"),
        ("x = {" + " . ".join(['"a"', "'b'"] * 30_000) + " = 1}", "nested deeper than 32 levels"),
        (f"[{'.'.join('a' * 100)}]", "nested deeper than 32 levels"),
        ("a = " + "9" * 5_000, "not a TOML file: "),
        ("a = 1e400", "a: inf is not a finite number"),
        ("[a]\nb = nan", "a.b: nan is not a finite number"),
        ("a = 2023-99-99", "not a TOML file: "),
        ('a = "\\u0000"', "a: has the character '\\x00'"),
    ],
)
def test_toml_beyond_its_limits_is_refused(text, said):
    assert said in refused(parse_toml, text)


READERS = {
    "scenario": load,
    "application": load_app,
    "job": job_file.load,
    "deployment": deployment.load,
    "recording": lambda path: recording.from_file(path, None),
    "fabric": lambda path: plan_file.plan(path, {}),
    "calibration": lambda path: calibration.read(path, 1, {}, ""),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_no_reader_waits_for_a_file_or_reads_one_without_end(read, tmp_path):
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(2**40)
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, said in (
        ("folder", "is a directory"),
        ("zero", "is a device"),
        ("pipe", "is a FIFO"),
        ("huge", f"larger than {MOST_BYTES} bytes"),
    ):
        with pytest.raises(ScenarioError, match=rf"{name}\.yaml: {said}"):
            read(tmp_path / f"{name}.yaml")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_every_reader_keeps_the_limits(read, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name = " + "[" * 3_000 if read is READERS["calibration"] else "name: " + "[" * 3_000)
    with pytest.raises(ScenarioError, match=f"nested deeper than {MOST_DEPTH} levels"):
        read(path)


def test_a_file_without_keys_is_told_what_is_expected(tmp_path):
    (tmp_path / "empty.yaml").touch()
    with pytest.raises(ScenarioError, match=r"empty\.yaml: empty file; expected keys"):
        read_keys(tmp_path / "empty.yaml", "keys")


@given(st.from_regex(r"-?[0-9]{1,17}(\.[0-9]{1,17})?", fullmatch=True))
def test_a_plain_number_is_read_as_yaml_reads_it_in_a_list(text):
    (listed,) = parse(f"[{text}]", "x")
    alone = parse(text, "x")
    assert (type(alone), alone) == (type(listed), listed)
