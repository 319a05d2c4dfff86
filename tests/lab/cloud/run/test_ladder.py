"""`twinbed prices ladder` over a small table of prices that is written here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli.main import call

HEAD = (
    "name,provider,region,market,price_per_h,currency,as_of,vcpus,memory_gib,gpus,gpu_model,network_bps,family,"
    "cpu_speed,disk_gib,source,sold"
)
PRICES = (
    ("p3.2xlarge", "aws", "us-east-1", 1, "NVIDIA V100 16GB", ("2024-01-01", 1.0), ("2024-02-03", 1.2)),
    ("p2.xlarge", "aws", "us-east-1", 1, "NVIDIA K80", ("2024-01-01", 0.3)),
    ("p3.8xlarge", "aws", "us-east-1", 4, "NVIDIA V100 16GB", ("2024-01-01", 3.2)),
    ("p3dn", "aws", "us-east-1", 8, "NVIDIA V100 32GB", ("2024-01-01", 8.0)),
    ("g2", "gcp", "us-west1", 1, "NVIDIA L4", ("2024-01-01", 0.7), ("2024-02-02", 0.4)),
    ("g2", "gcp", "asia-east1", 1, "NVIDIA L4", ("2024-01-01", 0.05)),
)
"""Spot prices by type, cloud, region, GPUs and GPU: day and price of the machine."""
ASK = ["prices", "ladder", "--start", "2024-02-01", "--speed", "K80=0.25,L4=1", "--restart", "1s"]


@pytest.fixture
def table(tmp_path: Path) -> str:
    lines = [HEAD]
    for name, cloud, region, gpus, gpu, *prices in PRICES:
        days = [("spot", day, usd) for day, usd in prices] + [("on-demand", "2023-01-01", 1.0 * gpus)]
        lines += [
            f"{name},{cloud},{region},{market},{usd},USD,{day},4,16,{gpus},{gpu},1e9,x,1,0,here,yes"
            for market, day, usd in days
        ]
    path = tmp_path / "prices.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def answered(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict:
    assert call([*ASK, *arguments, "--format", "json", "--no-progress"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_place_that_has_only_other_gpus_may_be_named(table, capsys) -> None:
    none = answered(capsys, "--work", "1d", "--catalogue", table, "--where", "aws/us-", "--speed", "K80=0.25")
    also = answered(
        capsys, "--work", "1d", "--catalogue", table, "--where", "aws/us-,gcp/us-", "--speed", "K80=0.25"
    )
    assert also["rows"] == none["rows"]


def test_a_comma_at_the_end_of_the_places_is_no_further_place(table, capsys) -> None:
    here = ("--work", "4d", "--catalogue", table, "--where")
    assert answered(capsys, *here, "aws/us-,")["facts"] == answered(capsys, *here, "aws/us-")["facts"]


def test_home_is_one_region_and_not_those_whose_names_begin_like_it(table, capsys) -> None:
    """`--where` names beginnings; eastus2 is not eastus."""
    with Path(table).open("a") as file:
        for region, usd in (("eastus", 2.0), ("eastus2", 0.01)):
            file.write(f"nc6,azure,{region},spot,{usd},USD,2024-01-01,4,16,1,NVIDIA K80,1e9,x,1,0,here,yes\n")
    here = ("--work", "4d", "--catalogue", table, "--home", "azure/eastus", "--gpu", "K80", "--speed", "L4=4")
    rows = answered(capsys, *here, "--where", "gcp")["rows"]
    assert [row["offer"] for row in rows[1:4]] == ["azure/eastus/nc6"] * 2 + ["gcp/us-west1/g2"]
    rows = answered(capsys, *here, "--where", "gcp,azure/east")["rows"]
    assert rows[3]["offer"] == "azure/eastus2/nc6"


def test_every_step_is_priced_and_the_sweep_has_a_row_for_each_interval(table, capsys) -> None:
    answer = answered(capsys, "--work", "4d", "--catalogue", table, "--move-every", "12h,1d")
    rows = answer["rows"]
    assert [row["step"] for row in rows] == [
        "baseline",
        "gpu_type",
        "packed",
        "multi_cloud",
        "dynamic 12 h",
        "dynamic 24 h",
    ]
    # Two days at 1 $ and two at 1.2 $; a GPU of four costs 0.8 $, an L4 at first 0.7 $.
    assert [row["cost_usd"] for row in rows[:3]] == pytest.approx([105.6, 105.6, 76.8], rel=1e-3)
    assert rows[3]["cost_usd"] == rows[4]["cost_usd"] == pytest.approx(24 * (0.7 + 3 * 0.4), rel=1e-3)
    assert rows[0]["saving"] == 0
    assert rows[3]["offer"] == "gcp/us-west1/g2"
    said = " ".join(answer["notes"])
    assert "in 1 series of gcp" in said
    assert "The last price of gcp is of 2024-02-02; it was held beyond." in said


def test_what_a_region_does_not_sell_is_no_offer(table, capsys) -> None:
    """Google's list has prices of such types that lack the GPU, on demand as well as spot."""
    row = "g2,gcp,asia-east2,{},0.2,USD,2023-01-01,4,16,1,NVIDIA L4,1e9,x,1,0,here,no"
    with Path(table).open("a") as file:
        file.writelines(row.format(market) + "\n" for market in ("spot", "on-demand"))
    answer = answered(capsys, "--work", "4d", "--catalogue", table)
    assert answer["rows"][3]["offer"] == "gcp/us-west1/g2"
    assert "1 price series of types that their region does not sell: left out." in answer["notes"]


def test_an_offer_that_begins_after_the_start_is_counted_and_not_taken(table, capsys) -> None:
    later = "g2,gcp,asia-east2,spot,0.01,USD,2024-02-02,4,16,1,NVIDIA L4,1e9,x,1,0,here,yes\n"
    with Path(table).open("a") as file:
        file.write(later)
    answer = answered(capsys, "--work", "4d", "--catalogue", table)
    assert not any("asia-east2" in str(row["offer"]) for row in answer["rows"])
    assert "1 offer has its first price after the start: not taken, at no step." in answer["notes"]


def test_every_move_has_its_reason_and_both_prices(table, capsys) -> None:
    options = ["--work", "4d", "--catalogue", table, "--moves", "--checkpoint-gb", "1", "--egress", "5"]
    cheaper = Path(table).read_text().replace("us-west1,spot,0.7", "us-west1,spot,0.9")
    Path(table).write_text(cheaper)
    rows = [row for row in answered(capsys, *options)["rows"] if row["step"].startswith("dynamic")]
    assert [(row["at"], row["why"]) for row in rows] == [
        ("2024-02-01 00:00", "least cost at the start"),
        ("2024-02-02 00:00", "saves more than the move costs"),
    ]
    move = rows[1]
    assert (move["held_usd"], move["new_usd"]) == (0.8, 0.4)
    assert move["saves_usd"] == pytest.approx(24 * 0.4)
    assert move["costs_usd"] == pytest.approx(5.0, abs=0.001)
    assert rows[0]["saves_usd"] is None


def test_a_collection_is_admitted_in_order_and_what_cannot_be_is_named(table, tmp_path, capsys) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,arrival_h,work_h,deadline_h\nlate,1,10,5\nb,2,100,\na,0,10,20\nc,3,10,\n")
    answer = answered(capsys, "--jobs", str(jobs), "--budget", "20", "--catalogue", table)
    rows = {row["step"]: row for row in answer["rows"]}
    assert list(rows) == ["a", "late", "b", "c"]
    assert rows["a"]["cost_usd"] == pytest.approx(7.0, rel=1e-3)
    assert "infeasible: the deadline is after 5 h" in rows["late"]["why"]
    assert "refused: its predicted cost" in rows["b"]["why"]
    assert rows["b"]["predicted_usd"] == pytest.approx(70.0, rel=1e-3)
    assert rows["c"]["cost_usd"] == pytest.approx(7.0, rel=1e-3)
    assert answer["facts"]["paid ($)"] == 14.0
    free = answered(capsys, "--jobs", str(jobs), "--catalogue", table)["rows"]
    assert [row["step"] for row in free if row["cost_usd"] is None] == ["late"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,arrival_h,work_h,deadline_h\na,0,10,\n ,0,10,\n", "line 3, column name: an empty cell"),
        (
            "name,arrival_h,work_h,deadline_h,budget\na,0,10,,3\n",
            "unknown column 'budget'; columns are name, ",
        ),
    ],
)
def test_jobs_without_a_name_and_unknown_columns_are_named(text, message, table, tmp_path, capsys) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(text)
    assert call([*ASK, "--jobs", str(jobs), "--catalogue", table]) == 2
    assert f"{jobs}: {message}" in capsys.readouterr().err


def test_moves_tell_of_a_step_that_cannot_be_done(table, capsys) -> None:
    # The reference GPU needs four days and K80s longer; only a GPU at twice the speed is in time.
    options = ("--work", "4d", "--catalogue", table, "--deadline", "3d", "--speed", "K80=0.25,L4=2")
    rows = answered(capsys, *options, "--moves")["rows"]
    assert [row["step"] for row in rows[:3]] == ["baseline", "gpu_type", "packed"]
    assert all("infeasible: the deadline is after 72 h" in row["why"] for row in rows[:3])
    assert [row["hours"] for row in rows[:3]] == [None] * 3
    assert rows[3]["hours"] > 0


def test_jobs_without_a_deadline_have_the_one_that_is_given(table, tmp_path, capsys) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,arrival_h,work_h,deadline_h\na,0,10,20\nb,0,10,\n")
    options = ("--jobs", str(jobs), "--catalogue", table, "--deadline", "5h", "--restart", "0s")
    rows = {row["step"]: row for row in answered(capsys, *options)["rows"]}
    assert rows["a"]["cost_usd"] == pytest.approx(7.0)
    assert "infeasible: the deadline is after 5 h" in rows["b"]["why"]
    none = answered(capsys, "--jobs", str(jobs), "--catalogue", table, "--budget", "0", code=1)
    assert all("refused" in row["why"] for row in none["rows"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "x.csv", "--move-every", "1h,6h"], "--move-every 1h,6h: with --jobs give one time"),
        (["--work", "1d", "--jobs", "x.csv"], "give either --work TIME or --jobs FILE"),
        (["--work", "1d", "--home", "aws"], "--home aws: expected CLOUD/REGION"),
        (
            ["--work", "1d", "--gpu", "V100"],
            "--gpu V100: several GPUs have this in the name; give one of NVIDIA V100",
        ),
        (["--work", "1d", "--gpu", "B9000"], "--gpu B9000: no GPU of known speed has this in the name"),
        (["--work", "1d", "--speed", "V100=2"], "--speed V100=2: several GPUs have this in the name"),
        (["--work", "1d", "--market", "sport"], "--market sport: the prices are on-demand, spot; give one"),
        (["--work", "1d", "--egress", "inf"], "'--egress': inf is not a number"),
        (["--work", "1d", "--checkpoint-gb", "inf"], "'--checkpoint-gb': inf is not a number"),
        (["--work", "1d", "--speed", "T4=fast"], "--speed T4=fast: expected GPU=FACTOR"),
        (["--work", "1d", "--speed", "T4=-1"], "--speed T4=-1: expected GPU=FACTOR above 0"),
        (["--work", "1d", "--speed", "T4=nan"], "--speed T4=nan: expected GPU=FACTOR above 0"),
        (["--work", "1d", "--speed", "L4=60,V100 16GB=90"], "V100 16GB is the reference, so its factor is 1"),
        (["--work", "1d", "--start", "soon"], "--start soon: expected a day or a moment"),
        (["--work", "1d", "--where", "ibm", "--home", "ibm/moon"], "no price fits these clouds"),
        (
            ["--work", "1d", "--home", "aws/us-east-9"],
            "--home aws/us-east-9: no price is of that place; did you mean 'aws/us-east-1'?",
        ),
        (["--work", "1d", "--move-every", "6"], "--move-every 6: expected a number and a unit"),
        (
            ["--work", "1d", "--where", "aws/,aws/mon"],
            "--where aws/mon: no CLOUD/REGION begins so",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(arguments, message, table, capsys) -> None:
    assert call(["prices", "ladder", "--start", "2024-02-01", "--catalogue", table, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_choices_without_end_are_refused_at_their_step(table, capsys) -> None:
    rows = answered(capsys, "--work", "4d", "--catalogue", table, "--move-every", "1ms,1d")["rows"]
    assert rows[-2]["why"].startswith("more than 20,000 choices: take a longer --move-every")
    assert rows[-1]["cost_usd"] > 0


def test_an_exit_code_says_that_no_step_can_be_done(table, capsys) -> None:
    rows = answered(capsys, "--work", "4d", "--catalogue", table, "--deadline", "3d", code=1)["rows"]
    assert all("infeasible: the deadline is after 72 h" in row["why"] for row in rows)
    assert answered(capsys, "--work", "4d", "--catalogue", table, "--deadline", "3d", "--moves", code=1)
    # 1.5 times as fast on an L4, only the last two steps are in time.
    some = answered(capsys, "--work", "4d", "--catalogue", table, "--deadline", "3d", "--speed", "L4=1.5")
    assert [row["cost_usd"] is None for row in some["rows"]] == [True] * 3 + [False] * 2


def test_a_budget_below_zero_is_refused_by_its_name(table, capsys) -> None:
    ask = ["prices", "ladder", "--start", "2024-02-01", "--jobs", "x.csv", "--budget", "-3"]
    assert call([*ask, "--catalogue", table]) == 2
    assert "--budget" in capsys.readouterr().err
