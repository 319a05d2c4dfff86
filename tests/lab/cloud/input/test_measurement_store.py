import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from control.jobs import Configuration, InstanceType, candidates
from lab.cloud.input import store
from lab.cloud.input.store import (
    Measurements,
    Run,
    as_history,
    default_path,
    network_use,
    read_csv,
    trials_of,
)
from twinbed import StoreError, TraceError

HEADER = "job,instance,workers,time_s,price_usd_h,vcpus,memory_gib,ok,parameter.lr\n"


def run(job: str, instance: str, workers: int, time_s: float, **more: object) -> Run:
    return Run(job, instance, workers, time_s, price_usd_h=2.0 * workers, vcpus=4, memory_gib=16, **more)  # type: ignore[arg-type]


def test_runs_come_back_as_they_were_added(tmp_path):
    database = Measurements(tmp_path / "new" / "m.duckdb")
    assert database.runs() == []
    assert as_history(database.runs()) is None
    runs = [run("a", "m4", 2, 10.0, parameters={"lr": 0.1}, batch=32), run("b", "c4", 4, 20.0, ok=False)]
    assert database.add(runs) == 2
    database.add([run("a", "m4", 4, 7.0)])
    assert database.runs() == [*runs, run("a", "m4", 4, 7.0)]


def test_a_database_that_another_process_uses_is_tried_again(tmp_path, monkeypatch):
    database = Measurements(tmp_path / "m.duckdb")
    database.add([run("a", "m4", 2, 10.0)])
    holds = f"import duckdb; d = duckdb.connect({str(database.path)!r}); print('holds', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", holds], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout
        assert other.stdout.readline() == "holds\n"
        monkeypatch.setattr(store.time, "sleep", lambda _: other.communicate("now\n"))
        database.add([run("a", "m4", 4, 7.0)])
    assert len(database.runs()) == 2


def test_a_csv_in_place_of_the_database_is_refused_and_stays(tmp_path):
    file = tmp_path / "runs.csv"
    file.write_text(HEADER + "a,m4,2,10,4,4,16,true,0.1\n")
    before = file.read_bytes()
    for use in (Measurements(file).runs, lambda: Measurements(file).add([run("a", "m4", 4, 7.0)])):
        with pytest.raises(StoreError, match=r"runs\.csv: not a database .* measurements import makes one"):
            use()
    assert file.read_bytes() == before


def test_a_file_that_grew_adds_its_new_rows_alone(tmp_path):
    """Who tries, writes a row and imports the file again must not count the older trials twice."""
    database, file = Measurements(tmp_path / "m.duckdb"), tmp_path / "runs.csv"
    rows = HEADER + "a,m4,2,10,4,4,16,true,0.1\n" + 2 * "b,c4,4,20,8,4,16,false,\n"
    file.write_text(rows)
    assert database.add_new(read_csv(file)) == 3
    file.write_text(rows + "a,m4,4,7,8,4,16,true,0.1\n")
    assert database.add_new(read_csv(file.rename(tmp_path / "renamed.csv"))) == 1
    assert [run.time_s for run in database.runs()] == [10, 20, 20, 7]


def test_a_history_has_the_median_of_runs_that_ended_and_the_bound_of_those_that_did_not():
    history = as_history(
        [
            run("a", "m4", 2, 10.0),
            run("a", "m4", 2, 14.0),
            run("a", "m4", 2, 99.0, ok=False),
            run("b", "c4", 2, 50.0, ok=False),
            run("b", "c4", 2, 60.0, ok=False),
        ]
    )
    assert history is not None
    assert history.jobs == ("a", "b")
    at = {str(name): column for column, name in enumerate(history.candidates.name)}
    assert history.time_s[0, at["m4"]] == 12.0
    assert history.cost_usd[0, at["m4"]] == pytest.approx(12 / 3600 * 4)
    assert history.time_s[1, at["c4"]] == 60.0
    assert history.ok.tolist() == [[name == "m4" for name in history.candidates.name], [False, False]]
    assert np.isnan(history.time_s[0, at["c4"]])


def test_trials_are_the_runs_of_the_job_on_candidates():
    types = {"m4": InstanceType("m4", "aws", 4, 16)}
    among = candidates(types, {"m4": 3.0}, [Configuration("m4", 2), Configuration("m4", 4)])
    trials = trials_of("a", [run("a", "m4", 4, 36.0), run("a", "c4", 2, 1.0), run("b", "m4", 2, 1.0)], among)
    assert trials.candidate.tolist() == [1]
    assert trials.cost_usd.tolist() == [pytest.approx(0.08)]  # at the price that was paid, not today's


def test_a_csv_file_is_read_with_its_parameters(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(HEADER.replace(",", ", ") + "a,m4,2,10.5,4.0,4,16,,0.1\nb,m4,2,600,4.0,4,16,false,\n")
    first, second = read_csv(path)
    assert first == Run("a", "m4", 2, 10.5, 4.0, 4.0, 16.0, parameters={"lr": 0.1}, source="runs.csv")
    assert (second.ok, second.parameters) == (False, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job,instance\na,b\n", "column workers is missing"),
        (HEADER.replace("ok", "okay") + "a,m4,2,10,4,4,16,,\n", "column okay is unknown"),
        (HEADER + "a,m4,2,nan,4,4,16,,\n", "row 2, column time_s: 'nan': Input should be"),
        (
            HEADER + "a,m4,2,1,4,4,16,,\na,m4,0,1,4,4,16,,\n",
            "row 3, column workers: '0': Input",
        ),
        (HEADER + "a,m4,2,1,4,4,16,maybe,\n", "column ok: 'maybe': Input should be a valid boolean"),
        (
            HEADER + "a,m4,2,,4,4,16,false,\n",
            "row 2, column time_s: is empty; of a run that failed, give the time until then$",
        ),
        (HEADER + "a,m4,2,1,,4,16,,\n", "row 2, column price_usd_h: is empty$"),
        (HEADER + "a,m4,2,1,4\n", "row 2: 5 fields between commas, and the header has 9"),
        (HEADER.replace(",", ";"), "row 1: expected ',' between fields, not ';'; save it with commas"),
        (HEADER.replace(",", "\t"), r"row 1: expected ',' between fields, not '\\t'; save it with commas"),
        (HEADER.replace("lr", "") + "a,m4,2,1,4,4,16,,1\n", "column parameter. is unknown"),
        (
            HEADER.replace("lr", "lr,servers,server_instance") + "a,m4,2,1,4,4,16,,1,3,\n",
            "row 2, column server_instance: is empty; name the type of the 3 servers$",
        ),
        (
            HEADER.replace("lr", "lr,server_instance") + "a,m4,2,1,4,4,16,,1,c4\n",
            "row 2, column servers: is 0; give the number of servers of type c4$",
        ),
        ("," + HEADER + "0,a,m4,2,1,4,4,16,,1\n", "csv: column '' is unknown"),
    ],
)
def test_a_csv_file_that_is_wrong_is_refused_by_row_and_column(tmp_path, text, message):
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_csv(path)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "m.duckdb"
    path.write_text("no database at all, and long enough to be looked at" * 100)
    (tmp_path / "runs.csv").write_text("job,instance\na,b\n")
    for name in (path.name, "runs.csv"):
        with pytest.raises(StoreError, match=r"not a database of measurements.*import makes one from a CSV"):
            Measurements(tmp_path / name).runs()


def test_the_place_of_the_database_can_be_chosen(monkeypatch):
    monkeypatch.setenv("TWINBED_MEASUREMENTS", "/elsewhere/m.duckdb")
    assert default_path() == Path("/elsewhere/m.duckdb")
    monkeypatch.delenv("TWINBED_MEASUREMENTS")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_path() == Path("/data/twinbed/measurements.duckdb")


def test_a_file_from_before_use_bps_is_read_and_added_to(tmp_path):
    database = Measurements(tmp_path / "m.duckdb")
    alone = run("a", "m4", 1, 60.0, servers=1, server_instance="m4.large")
    database.add([alone])
    with duckdb.connect(str(database.path)) as file:
        file.execute("ALTER TABLE runs DROP COLUMN use_bps")
    assert database.runs() == [alone]
    database.add([replace(alone, use_bps=1e8)])
    assert [row.use_bps for row in database.runs()] == [None, 1e8]


def test_the_network_use_of_a_type_is_the_median_of_its_runs_with_one_worker_and_one_server():
    alone = run("a", "m4", 1, 60.0, servers=1, server_instance="m4.large", use_bps=1e8)
    runs = [alone, replace(alone, use_bps=3e8), replace(alone, use_bps=2e8), replace(alone, instance="t2")]
    others = [
        replace(alone, workers=2),
        replace(alone, servers=2),
        replace(alone, job="b"),
        replace(alone, ok=False),
    ]
    assert network_use("a", 32, [*runs, *others, replace(alone, batch=64)]) == {"m4": 2e8, "t2": 1e8}
    assert network_use("a", 64, [replace(alone, batch=64)]) == {"m4": 1e8}


def test_a_table_without_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("job,instance,workers,time_s,price_usd_h,vcpus,memory_gib\n")
    with pytest.raises(TraceError, match=r"runs.csv: a header without rows"):
        read_csv(path)
