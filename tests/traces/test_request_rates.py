"""Series of request rates and lists of arrival times, and the errors for wrong ones."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from traces.request_rates import read_rates, read_timestamps
from twinbed import TraceError


def written(tmp_path, text: str):
    path = tmp_path / "load.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_rates_are_read_with_their_step(tmp_path):
    series = read_rates(written(tmp_path, "t_s,rps\n5,10\n5.5,0\n6,2.5\n"))
    assert (series.step_s, series.duration_s, series.rates_rps.tolist()) == (0.5, 1.5, [10, 0, 2.5])


def test_stamps_gzip_and_other_columns_are_fine(tmp_path):
    path = tmp_path / "load.csv.gz"
    path.write_bytes(gzip.compress(b"time,who,rps\n2024-05-01T10:00:00Z,a,1\n2024-05-01T10:01:00Z,b,2\n"))
    series = read_rates(path)
    assert (series.step_s, series.rates_rps.tolist()) == (60.0, [1, 2])


def test_times_that_were_rounded_are_still_regular(tmp_path):
    rows = "".join(f"{at / 3:.3f},{at}\n" for at in range(1000))
    assert read_rates(written(tmp_path, "t_s,rps\n" + rows)).step_s == pytest.approx(1 / 3, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("t_s,rps\n", "no rows below the header"),
        ("t_s,rps\n0,1\n", "one row does not show how long its rate holds"),
        ("t_s,load\n0,1\n1,1\n", "no column 'rps' or"),
        ("t_s,time,rps\n0,0,1\n1,1,1\n", "columns t_s and time mean the same"),
        ("t_s,rps\n0,1\n1,-2\n2,1\n", "line 3, column rps: '-2', expected a rate, zero or above"),
        ("t_s,rps\n0,1\n1,nan\n2,1\n", "line 3, column rps: 'nan', expected a finite number"),
        ("t_s,rps\n0,1\n1,\n2,1\n", "line 3, column rps: an empty cell, expected a finite number"),
        ("t_s,rps\n0,1\n1,1\n1,1\n2,1\n", "line 4: time 1 s after 1 s, expected increasing"),
        ("t_s,rps\n0,1\n1,1\n2,1\n1.5,1\n4,1\n", "line 5: time 1.5 s after 2 s, expected increasing"),
        ("t_s,rps\n0,1\n1,1\n2,1\n4,1\n5,1\n", "line 5: time 4 s after 2 s, expected increasing"),
        ("t_s,rps\n0,1\n1,1\n5,1\n", "line 4: time 5 s after 1 s, expected increasing"),
        ("t_s,rps\n0,1\n4,1\n5,1\n", "line 3: time 4 s after 0 s, expected increasing"),
        ("t_s,rps\n0,1\n1,1\n0.5,1\n", "line 4: time 0.5 s after 1 s, expected increasing"),
        ("t_s,rps\n0,1\nx,1\n", "line 3, column t_s: 'x', expected a finite number"),
        (
            "timestamp,rps\n1774740000000,1\n1774740060000,2\n",
            "line 2, column timestamp: '1774740000000', expected seconds; divide milliseconds by 1000",
        ),
        ("time,rps\n2024-05-01,1\nsoon,1\n", "line 3, column time: 'soon', expected an ISO 8601 time"),
    ],
)
def test_wrong_rates_are_refused_with_file_and_line(text, said, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_rates(path)
    assert str(caught.value).startswith(f"{path}: {said}")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"gone\.csv: no such file"):
        read_rates(tmp_path / "gone.csv")


def test_time_stamps_count_from_the_first_and_may_coincide(tmp_path):
    path = written(tmp_path, "TIMESTAMP,x\n2024-05-01 10:00:00.1234567,1\n2024-05-01 10:00:00.1234567,1\n"
                             "2024-05-01 10:00:01.1234569,1\n")  # fmt: skip
    assert read_timestamps(path).tolist() == [0.0, 0.0, 1.0000002]
    assert read_timestamps(written(tmp_path, "t_s\n7\n")).tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t_s\n1\n3\n2\n", "line 4: '2' is before the time on the line above it"),
        ("t_s\n1\ninf\n", "line 3, column t_s: 'inf', expected a finite number"),
        ("when\n1\n", "no column 't_s' or"),
        ("timestamp\n2024-05-01\n\n1\n", "line 4, column timestamp: '1', expected an ISO 8601 time"),
    ],
)
def test_wrong_time_stamps_are_refused_with_file_and_line(text, said, tmp_path):
    path = written(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_timestamps(path)
    assert str(caught.value).startswith(f"{path}: {said}")


@pytest.mark.parametrize(
    ("name", "mean_rps"), [("bursty", 163.274), ("noisy", 157.476), ("diurnal-2", 228.361)]
)
def test_autothrottles_rates_are_an_hour_at_one_second(public_data, name, mean_rps):
    series = read_rates(public_data("autothrottle_rps_1s") / f"{name}.csv")
    assert (series.step_s, series.duration_s) == (1.0, 3600.0)
    assert series.rates_rps.mean() == pytest.approx(mean_rps, abs=0.001)


def test_azures_arrivals_are_an_hour_to_a_tenth_of_a_microsecond(public_data):
    path = public_data("azure_llm_inference_2023") / "azure_llm_conv.csv.gz"
    times = read_timestamps(path)
    raw = pd.to_datetime(pd.read_csv(path)["TIMESTAMP"])
    assert len(times) == 19_366
    assert (np.diff(times) >= 0).all()
    assert np.allclose(times, (raw - raw.iloc[0]).dt.total_seconds(), rtol=0, atol=2e-7)
