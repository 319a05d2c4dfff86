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


def test_zones_have_one_clock(tmp_path, capsys):
    # Zone a has machines in its first ten hours; zone b is known from the tenth hour on, and has some then.
    a = trace(tmp_path / "a.csv", (0, 1), (36000, 0), (93600, 0))
    b = trace(tmp_path / "b.csv", (36000, 1), (86400, 0), (129600, 0))
    verb = ["spot", a, b, "--work", "10h", "--deadline", "15h", "--starts", "1", "--policy", "greedy"]
    assert call([*verb, "--overhead", "0s", "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][1]
    assert (row["starts"], row["spot_h"], row["cost_usd"]) == (1, 10.0, pytest.approx(9.731))
    c = trace(tmp_path / "c.csv", (200_000, 1), (300_000, 1))
    assert call(["spot", a, c, "--work", "10h", "--deadline", "15h"]) == 2
    assert "the time that all traces have in common is 0.0 h long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--deadline", "4h"], "--deadline 4h: 4 h of work and a restart of 6 min do not fit before 4 h"),
        (["--deadline", "9h"], "give a shorter deadline or a longer trace"),
        (["--deadline", "6"], "--deadline 6: expected a number and a unit"),
        (["--deadline", "6h", "--policy", "oracle"], "no policy 'oracle'; there are planned"),
        (["--deadline", "6h", "--spot", "0"], "Invalid value for '--spot': 0 is not above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_cure(tmp_path, capsys, more, message):
    path = trace(tmp_path / "a.csv", (0, 1), (3600 * 8, 0), (3600 * 8.5, 0))
    assert call(["spot", path, "--work", "4h", *more]) == 2
    assert message in capsys.readouterr().err


def test_a_market_of_several_zones_is_refused_by_its_column(tmp_path, capsys):
    path = tmp_path / "market.csv"
    path.write_text("t_s,zone,available,spot_usd_h\n0,a,1,1\n0,b,1,1\n90000,a,1,1\n")
    assert call(["spot", str(path), "--work", "4h", "--deadline", "6h"]) == 2
    assert f"{path}: column zone: give a file for each zone" in capsys.readouterr().err


def test_a_job_that_ends_at_its_deadline_is_not_late(tmp_path, capsys):
    path = trace(tmp_path / "a.csv", (0, 1), (36000, 1))
    # 4.1 h are 14759.999999999998 s, and 4 h and 6 min are 14760 s.
    verb = ["spot", path, "--work", "4h", "--deadline", "4.1h", "--overhead", "6m", "--policy", "on-demand"]
    assert call([*verb, "--format", "json"]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][1]
    assert row["finish_h"] == pytest.approx(4.1)
    assert row["late"] == 0


def test_prices_by_time_are_not_left_out_in_silence(tmp_path, capsys):
    path = tmp_path / "priced.csv"
    path.write_text("t_s,available,spot_usd_h\n0,1,0.5\n90000,1,0.5\n")
    assert call(["spot", str(path), "--work", "4h", "--deadline", "6h"]) == 2
    assert f"{path}: column spot_usd_h: give" in capsys.readouterr().err


def test_too_many_decisions_are_refused_with_the_option_that_helps(tmp_path, capsys):
    verb = ["spot", trace(tmp_path / "a.csv", (0, 1), (4e6, 1)), "--work", "48h", "--deadline", "30d"]
    assert call([*verb, "--tick", "1s"]) == 2
    said = capsys.readouterr().err
    assert "--tick 1s: 2,592,001 decisions before the deadline, times 30 jobs and 1 zones" in said
    assert "take a longer --tick or fewer --starts" in said


def test_a_policy_that_takes_what_is_not_there_is_named(tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(
        "import numpy as np\nfrom control.market.ports import Decision\n\n\nclass Blind:\n"
        "    def __init__(self, terms):\n        pass\n\n    def on_step(self, state):\n"
        "        return Decision(np.zeros_like(state.held), np.zeros_like(state.held))\n"
    )
    verb = ["spot", trace(tmp_path / "a.csv", (0, 0), (90_000, 0)), "--work", "4h", "--deadline", "6h"]
    assert call([*verb, "--policy", f"greedy,{own}:Blind"]) == 2
    assert "policy Blind took spot where there is none, in tick 0" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", " , "])
def test_no_policy_is_refused(text, tmp_path, capsys):
    verb = ["spot", trace(tmp_path / "a.csv", (0, 1), (90_000, 1)), "--work", "4h", "--deadline", "6h"]
    assert call([*verb, "--policy", text]) == 2
    assert f"--policy {text!r}: names nothing; give names with commas" in capsys.readouterr().err


def test_spot_that_is_there_for_a_part_of_each_tick_is_not_counted_as_there(tmp_path, capsys):
    flips = "".join(f"{300 * step},{step % 2}\n" for step in range(200))
    path = tmp_path / "flips.csv"
    path.write_text(f"t_s,available\n{flips}")
    verb = ["spot", str(path), "--work", "4h", "--deadline", "6h", "--starts", "1", "--policy", "greedy"]
    # 36 of the 73 ticks that begin within the six hours or at their end.
    for tick, share in (("10m", "0% of the ticks of 600 s"), ("5m", "49% of the ticks of 300 s")):
        assert call([*verb, "--tick", tick, "--format", "markdown"]) == 0
        assert f"throughout {share}" in capsys.readouterr().out


def test_a_policy_of_one_s_own_that_gives_no_reasons_is_compared_without_a_warning(tmp_path, capsys, recwarn):
    own = tmp_path / "own.py"
    own.write_text(
        "import numpy as np\n"
        "from control.market.ports import DONE, ON_DEMAND, Decision\n\n\n"
        "class Silent:\n"
        "    def __init__(self, terms):\n"
        "        pass\n\n"
        "    def on_step(self, state):\n"
        "        jobs = state.done_s.size\n"
        "        return Decision(np.full(jobs, ON_DEMAND), np.full(jobs, DONE))\n"
    )
    verb = ["spot", trace(tmp_path / "a.csv", (0, 1), (36000, 0)), "--work", "2h", "--deadline", "3h"]
    assert call([*verb, "--policy", f"{own}:Silent", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][1]["reasons"] == ""
    assert [warning for warning in recwarn if "divide" in str(warning.message)] == []
