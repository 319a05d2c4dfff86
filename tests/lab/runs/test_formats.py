"""The four written forms of one result."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.runs import formats
from lab.runs.formats import Column, Result

COLUMNS = (
    Column("label", "Policy"),
    Column("slack", "CPU slack", "cores", 3, spread="slack_ci95", section="a"),
    Column("share", "Throttled", "1", 4, percent=True, section="b"),
    Column("kills", "Kills", "1", 0, section="b"),
)
ROWS = (
    {"label": "escra", "slack": 1 / 3, "slack_ci95": 0.01, "share": 0.0123, "kills": 0.0},
    {
        "label": "static:factor=1.5", "slack": 12_345.678, "slack_ci95": math.nan, "share": math.nan,
        "kills": 2.0,
    },
)  # fmt: skip
RESULT = Result(COLUMNS, ROWS, {"seed": 7}, "Lower is better.", ("One note.",), aside="label")


@given(st.floats(), st.floats())
def test_json_has_only_numbers_that_every_reader_of_json_knows(value, fact):
    def refuse(name):
        raise AssertionError(name)

    written = formats.json(Result((Column("x", "X"),), ({"x": value},), {"fact": fact}))
    document = json.loads(written, parse_constant=refuse)
    for read, expected in ((document["rows"][0]["x"], value), (document["facts"]["fact"], fact)):
        assert read == (expected if math.isfinite(expected) else None)


def test_json_has_every_digit_its_units_and_null_for_what_is_undefined():
    document = json.loads(formats.json(RESULT))
    assert document["rows"][0]["slack"] == 1 / 3
    assert document["rows"][1]["share"] is None
    assert document["rows"][1]["slack_ci95"] is None
    assert {each["key"]: each["unit"] for each in document["columns"]}["slack"] == "cores"
    assert document["schema"] == formats.JSON_SCHEMA
    assert document["facts"] == {"seed": 7}
    assert document["notes"] == ["One note."]


def test_csv_has_one_record_per_line_under_its_keys():
    lines = list(csv.DictReader(io.StringIO(formats.csv(RESULT))))
    assert list(lines[0]) == ["label", "slack", "slack_ci95", "share", "kills"]
    assert float(lines[0]["slack"]) == 1 / 3
    assert lines[1]["share"] == ""


def test_csv_quotes_what_holds_its_separators():
    result = Result((Column("a", "A"),), ({"a": 'x,"y"\nz'},))
    assert list(csv.reader(io.StringIO(formats.csv(result)))) == [["a"], ['x,"y"\nz']]


def test_a_table_shows_quantities_by_record_with_units_spread_and_dashes():
    lines = formats.table(RESULT, 100).splitlines()
    assert lines[0].split() == ["seed", "7"]
    slack = next(line for line in lines if line.startswith("CPU slack"))
    assert slack.split() == ["CPU", "slack", "(cores)", "0.333", "±", "0.010", "12,345.7"]
    assert next(line for line in lines if line.startswith("Throttled")).split() == [
        "Throttled", "(%)", "1.23", formats.ABSENT,
    ]  # fmt: skip
    assert lines[-3:] == ["Lower is better.", "", "· One note."]


def test_records_that_do_not_fit_beside_each_other_come_in_blocks_with_every_figure():
    narrow = formats.table(RESULT, 40)
    assert max(len(line) for line in narrow.splitlines()) <= 40
    assert narrow.count("CPU slack (cores)") == 2
    assert "0.333 ± 0.010" in narrow
    assert "12,345.7" in narrow
    # A policy's parameters stand below its name.
    assert ["factor=1.5"] in map(str.split, narrow.splitlines()), narrow


def test_names_of_quantities_wrap_if_the_records_then_need_fewer_tables():
    columns = (
        Column("label", "Policy"),
        Column("saved", "Reserved CPU against static, smaller saving", "%", 2),
        Column("kills", "OOM kills", decimals=0),
    )
    rows = tuple({"label": label, "saved": -62.5, "kills": 0} for label in ("escra", "vpa", "static", "krr"))
    lines = formats.table(Result(columns, rows, aside="label"), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("escra" in line for line in lines) == sum("krr" in line for line in lines) == 1
    (wrapped,) = (line for line in lines if line.startswith("Reserved CPU"))
    assert wrapped.count("-62.50") == 4


def test_many_records_stand_one_per_line_where_that_is_shorter():
    rows = tuple(ROWS[0] | {"label": f"escra gamma={number}"} for number in range(20))
    lines = formats.table(Result(COLUMNS, rows, aside="label"), 60).splitlines()
    assert sum(line.startswith("escra gamma=") for line in lines) == 20
    assert max(map(len, lines)) <= 60


def test_a_sentence_that_rows_share_is_said_once():
    columns = (Column("name", "Name"), Column("why", "Why"))
    long, short = "because nothing was measured for so long a time", "because it is new"
    shared = formats.table(Result(columns, tuple({"name": name, "why": long} for name in "abcd")))
    assert shared.count(long) == 1
    assert f"· Why, in all rows: {long}" in shared
    rows = tuple(
        {"name": name, "why": why} for name, why in zip("abcd", (long, long, long, short), strict=True)
    )
    text = formats.table(Result(columns, rows))
    assert text.count("[1]") == 4
    assert f"· Why [1]: {long}" in text
    assert text.count(short) == 1


def test_too_many_figures_come_below_each_other_beside_their_names():
    columns = (Column("name", "Name"), *(Column(f"k{i}", f"Key {i}", "cores", 3) for i in range(12)))
    row = {"name": "a-name-of-some-length"} | {f"k{i}": 1000.125 + i for i in range(12)}
    text = formats.table(Result(columns, (row,)), 60)
    assert max(map(len, text.splitlines())) <= 60
    for i in range(12):
        (line,) = (line for line in text.splitlines() if f"{1000.125 + i:,.3f}" in line)
        assert line.startswith("a-name-of-some-length ")


def test_numbers_that_name_a_row_stand_in_every_table_too():
    keys = (Column("escra.kappa", "escra.kappa"), Column("policy", "Policy"), Column("seeds", "Seeds"))
    columns = (*keys, *(Column(f"k{i}", f"Key {i}", "cores", 3) for i in range(9)))
    row = {"escra.kappa": 0.25, "policy": "escra", "seeds": 2} | {f"k{i}": 1000.125 + i for i in range(9)}
    text = formats.table(Result(columns, (row,)), 60)
    assert max(map(len, text.splitlines())) <= 60
    for i in range(9):
        (line,) = (line for line in text.splitlines() if f"{1000.125 + i:,.3f}" in line)
        assert line.split()[:2] == ["0.25", "escra"]


def test_many_texts_come_below_each_other_beside_the_first():
    columns = (Column("name", "Container"), *(Column(f"k{i}", f"Setting {i}", "cores") for i in range(8)))
    row = {"name": "shop/web-7d4b9c6f5-x2k4z/app"} | {f"k{i}": f"{i} → 0.605 / {i} → none" for i in range(8)}
    lines = formats.table(Result(columns, (row,)), 80).splitlines()
    assert max(map(len, lines)) <= 80
    for i in range(8):
        (line,) = (line for line in lines if f"{i} → 0.605 / {i} → none" in line)
        assert line.startswith("shop/web-7d4b9c6f5-x2k4z/app ")


def test_names_that_leave_no_room_for_figures_are_broken_where_their_parts_end():
    columns = (
        Column("container", "container"),
        Column("app", "app"),
        *(Column(f"k{i}", "Delayed work", "s", 3) for i in range(12)),
    )
    pods = ("web-7d4b9c6f5-x2k4z", "checkout-service-6b8c9d7f4-lq9zt", "x" * 60)
    figures = {f"k{i}": 1.125 + i for i in range(12)}
    rows = tuple(
        {"container": f"online-boutique-production/{pod}/server", "app": "app", **figures} for pod in pods
    )
    lines = formats.table(Result(columns, rows), 80).splitlines()
    assert max(map(len, lines)) <= 80
    blocks = [at for at, line in enumerate(lines) if line.startswith("container ")]
    assert len(blocks) <= 4
    named = [line.split()[0] for line in lines[blocks[0] + 2 : blocks[1]] if line and line[0] not in " ─"]
    assert named[:2] == ["online-boutique-production/", "web-7d4b9c6f5-x2k4z/server"]
    assert named[3:5] == ["checkout-service-6b8c9d7f4-", "lq9zt/server"]
    assert "".join(named).startswith("".join(row["container"] for row in rows))
    assert [line.split()[1] for line in lines if "online-boutique" in line] == ["app"] * 3 * len(blocks)


def test_names_stay_in_one_piece_while_prose_wraps():
    columns = (Column("id", "Id"), Column("why", "Why"))
    result = Result(columns, ({"id": "a-run-of-some-policy-0123456789", "why": "because " * 20},))
    assert "a-run-of-some-policy-0123456789 " in formats.table(result, 80)


def test_a_sentence_below_the_table_names_its_row_alone():
    columns = [Column(title, title) for title in ("For", "Name", "State", "Processes", "Besides")]
    names = [("fabric", "one", "live"), ("fabric", "two", "live"), ("containers", "run-1", "live")]
    cells = [(*name, 5, f"{name[1]} " + "has parts " * 12) for name in names]
    rows = tuple(dict(zip((column.key for column in columns), row, strict=True)) for row in cells)
    text = formats.table(Result(tuple(columns), rows), 60)
    for said in ("· fabric one: one has", "· fabric two: two has", "· containers run-1: run-1 has"):
        assert said in text


def test_sentences_that_would_break_names_and_figures_stand_below_the_table():
    cells = {
        "Container": "online-boutique/checkout/server",
        "Verdict": "leave",
        "CPU request / limit (cores)": "0.6 / 1.2",
        "Late on a full host (% of work)": "58",
        "Reason": "because " * 20,
    }
    result = Result(tuple(Column(title, title) for title in cells), (cells,))
    text = formats.table(result, 80)
    assert re.search(r"^online-boutique/checkout/server +leave +0.6 / 1.2 +58$", text, re.MULTILINE)
    assert "· online-boutique/checkout/server: because because" in text
    assert "Reason" not in text
    assert "Reason" in formats.table(result, 200)


def test_notes_wrap_and_hyphens_and_long_words_stay_whole():
    address = "https://example.org/a-page-of-a-name-that-is-longer-than-a-line"
    columns = (Column("name", "Name"), Column("tries", "In re-try", decimals=0))
    notes = ("one two three four-five", f"See {address} for more.")
    lines = formats.table(Result(columns, ({"name": "a", "tries": 1},), notes=notes), 20).splitlines()
    assert [line.split() for line in lines[:2]] == [["In"], ["Name", "re-try"]]
    wanted = ["· one two three", "  four-five", "· See", f"  {address}", "  for more."]
    assert lines[-5:] == wanted


def test_a_table_to_a_file_has_no_terminal_codes_and_one_to_a_terminal_emphasises_no_figure():
    assert "\x1b" not in formats.table(RESULT)
    coloured = formats.table(RESULT, color=True)
    assert "\x1b" in coloured
    assert not any("\x1b" in line for line in coloured.splitlines() if "CPU slack" in line)
    assert all("\x1b[1m" in line for line in coloured.splitlines() if "escra" in line)


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_a_name_from_a_file_cannot_steer_the_terminal(name):
    result = Result((Column("a", "A"),), ({"a": "x\x1b[31my\nz"},), notes=("n\x1b]0;t\x07",))
    assert "\x1b" not in formats.FORMATS[name](result)


def test_a_name_in_square_brackets_is_text_and_not_markup():
    assert "[bold]x[/bold]" in formats.table(Result((Column("a", "A"),), ({"a": "[bold]x[/bold]"},)))


def test_people_see_the_first_thousand_rows_and_programs_see_all():
    long = Result((Column("name", "Name"),), tuple({"name": f"row-{number}"} for number in range(1500)))
    for form in ("table", "markdown"):
        text = formats.FORMATS[form](long)
        assert "1,000 of 1,500 rows are shown; --format csv has all." in text
        assert ("row-999" in text, "row-1000" in text) == (True, False)
    assert all("row-1499" in formats.FORMATS[form](long) for form in ("json", "csv"))


def test_markdown_escapes_what_would_end_a_cell():
    text = formats.markdown(Result((Column("a", "A"),), ({"a": "x|<b>"},)))
    assert text == "| A |\n| --- |\n| x\\|&lt;b> |\n"


def test_markdown_has_the_same_view_as_the_table():
    lines = formats.markdown(RESULT).splitlines()
    assert "|  | escra | static:factor=1.5 |" in lines
    assert "| Kills | 0 | 2 |" in lines
    more = formats.markdown(replace(RESULT, facts={"seed": 7, "hosts": 2}, notes=("One.", "Two.")))
    assert more.startswith("- seed: 7\n- hosts: 2\n\n|  | escra |")
    assert more.endswith("\n\n*Lower is better.*\n\n- One.\n- Two.\n")


@pytest.mark.parametrize(
    ("value", "decimals", "wanted"),
    [
        (0.0, 3, "0.000"),
        (0.0004, 3, "< 0.001"),
        (-0.0004, 3, "> -0.001"),
        (0.0006, 3, "0.001"),
        (1234.5678, 3, "1,234.568"),
        (9999.5, 3, "9,999.500"),
        (10_000.0, 3, "10,000.0"),
        (123456.789, 3, "123,456.8"),
        (math.nan, 3, formats.ABSENT),
        (None, None, formats.ABSENT),
        (True, None, "yes"),
        (1234567, None, "1,234,567"),
        (0.1, None, "0.1"),
        ("text", None, "text"),
    ],
)
def test_people_see_rounded_figures_and_never_a_false_zero(value, decimals, wanted):
    assert formats.shown(value, decimals) == wanted


@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_an_empty_result_can_be_written_in_every_format(name):
    assert formats.FORMATS[name](Result((*COLUMNS, Column("what", "")), ())).endswith("\n")


@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_the_same_result_is_written_in_the_same_bytes(name):
    assert formats.FORMATS[name](RESULT) == formats.FORMATS[name](RESULT)


def test_a_record_may_bring_its_own_number_of_decimals():
    column = Column("value", "Value", spread="half", digits="decimals")
    rows = ({"value": 1 / 3, "half": 0.01, "decimals": 3}, {"value": 1191.6, "half": 20.0, "decimals": 0})
    result = Result((column,), rows)
    assert [formats.cell(row, column) for row in rows] == ["0.333 ± 0.010", "1,192 ± 20"]
    assert list(json.loads(formats.json(result))["rows"][0]) == ["value", "half"]
    share = Column("share", "Share", decimals=4, percent=True, spread="half")
    assert formats.cell({"share": 0.5, "half": 0.01}, share) == "50.00 ± 1.00"


@pytest.mark.parametrize(
    ("values", "right"),
    [((1.5, None), True), ((2, 1.0), True), (("a", 1), False), ((True, 1), False), (("a", None), False)],
)
def test_a_column_of_numbers_and_gaps_is_right_aligned(values, right):
    result = Result((Column("x", "X"),), tuple({"x": value} for value in values))
    assert formats.grid(result)[1] == [right]


@pytest.mark.parametrize(
    ("value", "text"), [(1234567, "1234567"), (20260101.0, "20260101"), (None, "–"), (math.nan, "–")]
)
def test_a_number_that_is_a_name_has_no_separators(value, text):
    assert formats.cell({"seed": value}, Column("seed", "Seed", identifier=True)) == text


@pytest.mark.parametrize(("decimals", "text"), [(0, "14"), (1, "13.6"), (4, "13.58")])
def test_a_percentage_has_its_decimals_and_two_at_most(decimals: int, text: str) -> None:
    assert formats.shown(0.13579, decimals, percent=True) == text
