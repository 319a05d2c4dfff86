import json
from pathlib import Path

import pytest

from lab.cli.main import call


def trace(path: Path, *levels: tuple[float, int]) -> str:
    path.write_text("t_s,available\n" + "".join(f"{t},{value}\n" for t, value in levels))
    return str(path)


def test_policies_are_held_against_the_optimum(tmp_path, capsys):
    spells = [(3600.0 * hour, (hour // 2) % 2) for hour in range(40)]
    verb = ["spot", trace(tmp_path / "a.csv", *spells), "--work", "4h", "--deadline", "7h", "--starts", "5"]
    assert call([*verb, "--policy", "greedy,planned", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = {row["policy"]: row for row in answer["rows"]}
    assert next(iter(rows)) == "optimum"
    assert set(rows) == {"optimum", "greedy", "planned"}
    assert all(row["late"] == 0 and row["ratio"] >= 1 for row in rows.values())
    assert rows["greedy"]["starts"] > 0
    assert "%" in rows["planned"]["reasons"]
    assert answer["facts"]["jobs"] == 5
    assert (
        call([*verb, trace(tmp_path / "b.csv", (0, 1), (144000, 1)), "--policy", "greedy", "--format", "csv"])
        == 0
    )
    assert "greedy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--deadline", "4h"], "do not fit before 4 h"),
        (["--deadline", "9h"], "give a shorter deadline or a longer trace"),
        (["--deadline", "6"], "--deadline: '6' has no unit"),
        (["--deadline", "6h", "--policy", "oracle"], "no policy 'oracle'; there are planned"),
        (["--deadline", "6h", "--spot", "0"], "a spot price is not above zero"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_cure(tmp_path, capsys, more, message):
    path = trace(tmp_path / "a.csv", (0, 1), (3600 * 8, 0), (3600 * 8.5, 0))
    assert call(["spot", path, "--work", "4h", *more]) == 2
    assert message in capsys.readouterr().err
