"""`twinbed reserve`: two users whose waits and payments are known by hand."""

from __future__ import annotations

import json

import pytest

from lab.cli.main import call

LOG = "submit_s,duration_s,gpus,queue\n0,3600,16,a\n10,3600,1,b\n"


@pytest.fixture
def ask(tmp_path, capsys):
    path = tmp_path / "jobs.csv"
    path.write_text(LOG)

    def asked(*options: str, code: int = 0):
        assert call(["reserve", str(path), "--price", "2", *options, "--format", "json"]) == code
        out, err = capsys.readouterr()
        if code:
            return err
        told = json.loads(out)
        return told["facts"], {row["user"]: row for row in told["rows"]}, " ".join(told["notes"])

    return asked


def test_users_pay_by_their_use_and_leave_where_demand_is_cheaper(ask):
    facts, rows, notes = ask("--machines", "2", "--for", "2h", "--tolerance", "1.1")
    # 2 × 8 GPUs for 2 h at 1.20 $ are 38.40 $ for 17 GPU-hours, which cost 34 $ on demand.
    assert facts["bill ($)"] == 38.4
    assert facts["a used GPU-hour ($)"] == pytest.approx(38.4 / 17, abs=1e-4)
    assert rows["a"]["paid_usd"] == pytest.approx(38.4 * 16 / 17)
    assert rows["a"]["alone_usd"] == 32
    assert (rows["b"]["wait_h"], rows["b"]["leaves"]) == (pytest.approx(3590 / 3600), 1)
    assert rows["b"]["why"] == "cheaper on demand"
    assert facts["who stay"] == 0
    assert "at least 47%" in notes
    assert facts["fewest machines"] == 2
    assert facts["least discount with them"] == pytest.approx(1 - 34 / 64, abs=1e-4)
    facts, _, notes = ask("--machines", "3", "--for", "2h", "--tolerance", "1.1", "--discount", "65%")
    assert facts["who stay"] == 2
    assert "With 3 machines no user waits too long" in notes


def test_who_leaves_first_is_told_with_the_reason_and_the_others_pay_the_bill(ask, tmp_path):
    (tmp_path / "jobs.csv").write_text(f"{LOG}20,36000,7,a\n")
    facts, rows, _ = ask("--machines", "1")
    assert rows["a"]["why"] == "a job is larger than the cluster"
    assert rows["a"]["wait_h"] is None
    assert (rows["a"]["leaves"], rows["b"]["leaves"]) == (1, 2)
    assert facts["in the last round ($)"] == pytest.approx(facts["bill ($)"], abs=0.01)
    # The job of 16 GPUs is no use of the cluster, so a has 70 of 71 GPU-hours of 8 × 10 h.
    assert rows["a"]["paid_usd"] == pytest.approx(facts["bill ($)"] * 70 / 71, abs=0.01)
    assert (rows["a"]["unit_h"], rows["a"]["alone_usd"]) == (86, 172)
    assert facts["used"] == "89% of the reserved GPU-hours"


def test_a_job_that_never_fits_does_not_fill_the_cluster(ask):
    _, rows, notes = ask("--machines", "1")
    assert (rows["a"]["paid_usd"], rows["a"]["alone_usd"]) == (0, 32)
    assert "GPU-hours than are reserved" not in notes


def test_jobs_that_need_more_than_is_reserved_are_told(ask):
    assert "more GPU-hours than are reserved" in ask("--machines", "2", "--for", "1h")[2]


def test_a_cluster_in_which_no_job_fits_has_no_price_of_use(ask, tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_s,duration_s,gpus,queue\n0,3600,16,a\n10,3600,9,b\n")
    facts, rows, _ = ask("--machines", "1", "--wait-price", "1")
    assert facts["a used GPU-hour ($)"] is None
    assert {row["why"] for row in rows.values()} == {"a job is larger than the cluster"}


def test_who_leaves_only_because_waits_cost_is_told_so(ask):
    _, rows, notes = ask("--machines", "2", "--for", "2h", "--discount", "60%", "--wait-price", "3")
    assert rows["b"]["paid_usd"] < rows["b"]["alone_usd"] == 2
    assert rows["b"]["why"] == "cheaper on demand, as waits cost"
    assert notes == "No user waits too long with 2 machines or more. With 2 machines no discount keeps all."


def test_a_reservation_that_ends_before_the_log_is_told(ask):
    facts, _, notes = ask("--machines", "9", "--for", "30m")
    assert facts["reserved (h)"] == 0.5
    assert "Jobs of the log run after the reserved time" in notes
    assert "after the reserved" not in ask("--machines", "9")[2]


def test_a_large_bill_has_all_its_digits_and_a_discount_near_all_can_be_given(ask):
    facts, _, notes = ask("--machines", "100000", "--for", "2h", "--discount", "0%")
    assert str(facts["bill ($)"]) == "3200000"
    assert "With 100,000 machines no user waits too long, and all stay only if the discount is above" in notes


def test_with_flat_prices_everybody_pays_the_same(ask):
    _, rows, _ = ask("--machines", "3", "--pricing", "flat", "--discount", "0.9")
    assert rows["a"]["paid_usd"] == rows["b"]["paid_usd"]
    assert (rows["a"]["why"], rows["b"]["why"]) == ("stays", "cheaper on demand")


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        (["--machines", "1", "--discount", "100%"], "--discount 100%: expected a share of at least 0"),
        (["--machines", "1", "--pricing", "fair"], "--pricing"),
        (["--machines", "1", "--log-format", "lsf"], "--log-format lsf: expected one of"),
        (["--machines", "1", "--for", "0s"], "--for"),
        (["--machines", "9" * 400], "--machines"),
    ],
)
def test_a_wrong_option_names_what_is_expected(ask, options, cure):
    assert cure in ask(*options, code=2)


def test_a_log_without_queues_names_the_cure(ask, tmp_path, capsys):
    path = tmp_path / "bare.csv"
    path.write_text("submit_s,duration_s,gpus\n0,60,1\n")
    assert call(["reserve", str(path), "--machines", "1", "--price", "2"]) == 2
    assert "bare.csv: no job has a queue" in capsys.readouterr().err
