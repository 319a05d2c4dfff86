from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traces import load as door
from traces import parquet
from traces.load import FORMATS, Reader, load, load_history, shipped
from traces.prometheus import kept
from traces.prometheus.history import ClusterHistory
from traces.prometheus.in_force import Entries
from traces.prometheus.workloads import Owner
from traces.schema import UsageTrace
from twinbed import TraceError


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "it.csv"
    path.write_text("time,a,b,c\n0,1,2,3\n1,4,5,6\n2,7,8,9\n")
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    usage = np.ones((5, 2))
    trace = UsageTrace(("a", "b"), ("x", "x"), 0.0, 0.1, usage, usage, usage > 0)
    parquet.write(trace, tmp_path / "mine.parquet")
    return tmp_path / "mine.parquet"


def test_a_format_is_recognised_by_its_content(csv: Path, recording: Path) -> None:
    assert load(csv).shape == (3, 3)
    assert load(str(recording)).shape == (5, 2)
    unnamed = recording.rename(recording.with_name("mine"))
    assert load(unnamed).shape == (5, 2)


def test_every_shipped_recording_loads_by_its_name() -> None:
    for name in shipped():
        trace = load(name)
        assert trace.interval_s == pytest.approx(0.1)


def test_a_shipped_recording_is_found_by_name(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "RECORDED", recording.parent)
    assert shipped() == ["mine"]
    assert load("mine").shape == (5, 2)
    with pytest.raises(TraceError, match=r"yours: no such file or folder, and no shipped recording \(mine\)"):
        load("yours")


def test_cores_that_look_like_millicores_are_doubted(csv: Path) -> None:
    def doubts() -> list[str]:
        return [note for own in (load(csv), load_history(csv).trace) for note in own.notes if "milli" in note]

    assert doubts() == []
    csv.write_text("time,a,b\n0,1,250\n1,4,500\n")
    assert len(doubts()) == 2
    assert doubts()[0].startswith("Container b uses up to 500 cores")
    csv.write_text("time,a.cpu_millicores\n0,250\n1,500\n")
    assert doubts() == []


def test_selection_works_for_every_format(csv: Path) -> None:
    assert load(csv, max_containers=2).containers == ("a", "b")
    assert load(csv, containers=["c"], start_s=1.0, end_s=2.0).cpu_cores.tolist() == [[6.0]]
    with pytest.raises(TraceError, match="max_containers is 0"):
        load(csv, max_containers=0)


@pytest.mark.parametrize(
    ("selection", "problem"),
    [
        ({"containers": ["z"]}, "no container 'z' in the trace"),
        ({"start_s": 9.0}, "no interval begins from 9 s"),
        ({"start_s": "inf"}, "no interval begins from inf s"),
        ({"end_s": "nan"}, "start_s and end_s: expected seconds, and not NaN"),
        ({"max_containers": 0}, "max_containers is 0"),
        ({"end_s": "soon"}, "option 'end_s'"),
    ],
)
def test_what_cannot_be_selected_is_said_of_the_file(
    csv: Path, selection: dict[str, object], problem: str
) -> None:
    with pytest.raises(TraceError) as error:
        load(csv, **selection)
    assert str(error.value).startswith(f"{csv}: {problem}")


def test_an_endless_window_is_the_rest_of_the_trace(csv: Path) -> None:
    assert load(csv, start_s="-inf", end_s="inf").shape == (3, 3)
    assert load(csv, start_s=1.0, end_s="1e400").shape == (2, 3)


def test_a_selection_is_converted_from_text_as_options_are(csv: Path) -> None:
    assert load(csv, max_containers="2").containers == ("a", "b")
    assert load(csv, containers="c, a").containers == ("c", "a")
    assert load_history(csv, start_s="1", end_s="2").trace.shape == (1, 3)
    with pytest.raises(TraceError, match="option 'max_containers': input should be a valid integer"):
        load(csv, max_containers="many")


def test_a_part_of_a_history_keeps_its_owners_and_what_is_in_force(tmp_path: Path) -> None:
    usage = np.ones((6, 2))
    trace = UsageTrace(("a", "b"), ("x", "x"), 0.0, 60.0, usage, usage, usage > 0)
    owners = (Owner("x", "a", "c", "Pod", "a"), Owner("x", "b", "c", "Pod", "b"))
    limits = Entries(*np.array([[0, 2, 5], [1, 1, 1]], np.int32), np.array([1.0, 2.0, 3.0]))
    events = Entries(*np.array([[1, 3], [1, 1]], np.int32), np.array([1.0, 1.0]))
    whole = ClusterHistory(trace, owners, {"cpu_limit_cores": limits, "oom_events": events})
    kept.write(whole, tmp_path / "x.parquet")
    part = load_history(tmp_path / "x.parquet", containers=["b"], start_s=180, end_s=300)
    assert part.owners == owners[1:]
    assert part.in_force("cpu_limit_cores").tolist() == [2]
    assert part.total("oom_events").tolist() == [1]
    assert part.facts["oom_events"].interval.tolist() == [0]


def recorded(path: Path, **limits: str) -> Path:
    usage = np.ones((5, 2))
    facts = {"sampling_cores": "0.01", **{key.replace("__", "."): text for key, text in limits.items()}}
    parquet.write(UsageTrace(("a", "b"), ("x", "x"), 0.0, 0.1, usage, usage, usage > 0, metadata=facts), path)
    return path


def test_a_recording_says_under_which_limits_its_containers_ran(tmp_path: Path) -> None:
    path = recorded(tmp_path / "r.parquet", cpu_quota_cores__b="0.5", memory_limit_bytes__a="1024")
    history = load_history(path, containers=["b", "a"], start_s=0.2)
    assert history.in_force("cpu_limit_cores").tolist() == [0.5, 0]
    assert history.in_force("memory_limit_bytes").tolist() == [0, 1024]
    assert np.isnan(history.in_force("cpu_request_cores")).all()


@pytest.mark.parametrize("limit", ["many", "-1", "nan", "1e40"])
def test_a_recordings_limit_that_is_none_is_refused(tmp_path: Path, limit: str) -> None:
    path = recorded(tmp_path / "r.parquet", cpu_quota_cores__b=limit)
    with pytest.raises(TraceError, match=rf"r.parquet: its metadata: cpu_quota_cores.b: '{limit}' is"):
        load_history(path)


def test_a_wrong_option_is_named_with_its_format(csv: Path) -> None:
    with pytest.raises(TraceError, match="option 'colour' of format csv: unknown; there are app, inter"):
        load(csv, colour="red")
    with pytest.raises(TraceError, match="option 'interval_s' of format csv: input should be a valid number"):
        load(csv, interval_s="often")


def test_a_wrong_option_is_told_with_the_words_that_may_be_written(
    csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, unit: Literal["GiB", "MB"]) -> UsageTrace:
        raise NotImplementedError

    monkeypatch.setitem(FORMATS, "own", Reader("own", "mine", read, lambda columns: False))
    with pytest.raises(TraceError, match="input should be 'GiB' or 'MB'"):
        load(csv, format="own", unit="gib")


def test_an_unknown_format_gets_a_suggestion(csv: Path) -> None:
    with pytest.raises(TraceError, match="no trace format 'bitbrain'; did you mean bitbrains"):
        load(csv, format="bitbrain")


def test_a_file_read_under_the_wrong_format_says_what_is_missing(csv: Path, recording: Path) -> None:
    with pytest.raises(TraceError, match=r"no column 'app', 'day', .*the file has time, a, b, c"):
        load(csv, format="nezha")
    with pytest.raises(TraceError, match="not a readable Parquet file"):
        load(csv, format="recording")
    with pytest.raises(TraceError, match="line 1: expected name"):
        load(recording, format="openmetrics")


def test_a_parquet_file_that_nobody_knows_is_named_by_its_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"apples": [1]}), tmp_path / "it.parquet")
    with pytest.raises(TraceError, match=r"not a trace: expected a 'container' .*the file has apples"):
        load(tmp_path / "it.parquet")
    with pytest.raises(TraceError, match="not a twinbed trace"):
        load(tmp_path / "it.parquet", format="recording")


@pytest.mark.parametrize(
    "text",
    [
        "JobID|Submit|Start|ElapsedRaw|Partition|ReqTRES\n7|2024-05-01T10:00:00|x|60|a|gres/gpu=1\n",
        "; Version: 2.2\n1 0 0 60 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1\n",
        "submit_s,duration_s,gpus\n0,60,1\n",
    ],
)
def test_a_log_of_jobs_is_named_with_the_place_for_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"jobs\.txt: a log of jobs, .*cluster\.log .*ask-about-a-cluster"):
        load(path)


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a folder without a known trace"):
        load(tmp_path)
    with pytest.raises(TraceError, match=r"no file of format surf in this folder \(surf_fragments"):
        load(tmp_path, format="surf")


def test_every_format_has_a_line_for_the_list() -> None:
    for name, reader in FORMATS.items():
        assert reader.name == name
        assert reader.description
        assert "\n" not in reader.description
