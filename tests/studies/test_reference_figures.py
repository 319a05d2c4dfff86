"""The source's figures are read whole and checked."""

import pytest

from studies.reference_figures import parse, reference_figures, source
from twinbed import InvariantError

ENTRY = {
    "experiment": "E2",
    "key": "a",
    "what": "latency, A against B",
    "kind": "change",
    "value": -38.0,
    "unit": "%",
    "where": "section 1",
}


def written(*entries):
    lines = []
    for entry in entries:
        lines.append("[[figures]]")
        lines += [
            f"{key} = {value if isinstance(value, int | float | list) else repr(value)}"
            for key, value in entry.items()
        ]
    return "\n".join(lines)


def test_a_single_value_is_a_range_of_no_width():
    (figure,) = parse(written(ENTRY))
    assert (figure.low, figure.high, figure.kind) == (-38.0, -38.0, "change")


def test_a_range_keeps_its_ends():
    (figure,) = parse(written(ENTRY | {"kind": "absolute", "value": [100, 1000]}))
    assert (figure.low, figure.high) == (100.0, 1000.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "guess"}, "kind 'guess'"),
        ({"value": [2, 1]}, "neither a number nor"),
        ({"value": [1, 2, 3]}, "neither a number nor"),
        ({"kind": "sign", "value": 2}, "a sign is 1 or -1"),
        ({"kind": "absolute", "value": 0}, "there is no ratio to 0"),
        ({"note": "x"}, "note"),
    ],
)
def test_a_wrong_entry_is_named_with_its_problem(change, problem):
    with pytest.raises(InvariantError, match=r"reference figure 1 \(a\)") as error:
        parse(written(ENTRY | change))
    assert problem in str(error.value)


def test_the_same_figure_twice_is_refused():
    with pytest.raises(InvariantError, match="E2 a is given twice"):
        parse(written(ENTRY, ENTRY))


def test_the_shipped_files_have_figures_of_all_experiments():
    assert {figure.experiment for figure in reference_figures()} == {
        *(f"E{n}" for n in range(1, 10)),
        *(f"T{n}" for n in range(1, 6)),
        *(f"C{n}" for n in (1, 2, 4)),
        *(f"F{n}" for n in range(1, 5)),
    }
    assert "Escra" in source("E2")
    assert "THORN" in source("T4")
    assert "FIRM" in source("E9")
    assert "FC2" in source("F3")


def test_the_headline_figures_are_those_of_table_2_4():
    values = {figure.key: figure.low for figure in reference_figures() if figure.experiment == "E2"}
    # Escra chapter, table 2.4: against Static 1.5x and against Autopilot at 1 s.
    measures = (
        "latency_p999",
        "throughput",
        "cpu_slack_p50",
        "cpu_slack_p99",
        "memory_slack_p50",
        "memory_slack_p99",
    )
    assert [values[f"static_{key}"] for key in measures] == [-38.0, 25.4, -81.3, -74.2, -55.0, -95.9]
    assert [values[f"autopilot_{key}"] for key in measures] == [-36.1, 54.5, -78.3, -78.6, -26.7, -68.9]


def test_another_printing_is_a_figure_of_its_own():
    (figure,) = parse(written(ENTRY | {"also": -84.3, "also_where": "slides"}))
    assert figure.other_printing.low == figure.other_printing.high == -84.3
    assert figure.other_printing.where == "slides"
    assert parse(written(ENTRY))[0].other_printing is None


def test_another_printing_needs_its_place():
    with pytest.raises(InvariantError, match="also"):
        parse(written(ENTRY | {"also": 1.0}))
