from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from traces.readers import job_logs, throughputs
from traces.readers.job_logs import FORMATS
from twinbed import TraceError

SWF = (
    "; UnixStartTime: 0\n1 10 5 100 4 -1 -1 4 -1 -1 1 1 1 1 2 1 -1 -1\n"
    "2 0 -1 0 1 -1 -1 1 -1 -1 0 1 1 1 2 1 -1 -1\n"
)
SACCT = (
    "JobID|Submit|Start|ElapsedRaw|Partition|ReqTRES\n"
    "7|2026-01-01T00:01:00|2026-01-01T00:02:00|300|a|billing=4,cpu=4,gres/gpu=2,node=1\n"
    "6|2026-01-01T00:00:00|2026-01-01T00:00:30|60|b|cpu=4,gres/gpu:a100=8,gres/gpu=8\n"
    "8|2026-01-01T00:00:00|Unknown|0|b|gres/gpu=8\n"
)


def read(folder: Path, form: str, text: str):
    path = folder / "jobs"
    path.write_text(text)
    return FORMATS[form](path)


def test_a_plain_csv_with_and_without_its_optional_columns(tmp_path: Path) -> None:
    log = read(tmp_path, "csv", "submit_s,duration_s,gpus\n100,5,2\n90,6,1\n")
    assert log.submit_s.tolist() == [0, 10]
    assert log.gpus.tolist() == [1, 2]
    assert list(log.types) == [(), ()]
    more = read(tmp_path, "csv", "submit_s,duration_s,gpus,queue,model,types\n0,5,2,a,m,v100|k80\n")
    spaced = read(
        tmp_path, "csv", "submit_s, duration_s, gpus, queue, model, types\n0, 5, 2, a , m , v100 | k80\n"
    )
    for log in (more, spaced):
        assert (log.queue, log.model, log.types) == (["a"], ["m"], [("v100", "k80")])


def test_a_csv_names_the_columns_that_are_not_read(tmp_path: Path) -> None:
    log = read(tmp_path, "csv", "submit_s,weight,duration_s,gpus,queue,deadline_s\n0,2,5,2,a,900\n")
    assert log.notes == ("Columns of the log that are not read: weight, deadline_s",)


def test_a_start_before_the_submission_tells_of_no_wait(tmp_path: Path) -> None:
    """sacct prints local time, and clocks go back an hour in autumn."""
    text = SACCT.replace("T00:02:00|300", "T00:00:10|300")
    log = read(tmp_path, "sacct", text)
    assert log.waited_s[0] == 30
    assert np.isnan(log.waited_s[1])
    assert log.notes == (
        "Jobs that began before their submission, as where a clock went back: 1. Their waits count as "
        "unknown; print the log's times in UTC (TZ=UTC)",
    )
    assert read(tmp_path, "sacct", SACCT).notes == ()


def test_the_standard_workload_format(tmp_path: Path) -> None:
    log = read(tmp_path, "swf", SWF)
    assert (log.duration_s.tolist(), log.gpus.tolist(), log.queue) == ([100.0], [4], ["2"])
    assert (log.waited_s.tolist(), log.left_out) == ([5.0], 1)


def test_lines_for_parts_of_a_job_and_what_is_not_known_are_left_out(tmp_path: Path) -> None:
    job = "{id} {submit} 5 {run} 4 -1 -1 4 -1 -1 {status} 1 1 1 {queue} 1 -1 -1\n"
    rows = [
        (1, 10, 300, 1, 2),
        (1, 10, 100, 2, 2),
        (1, 160, 200, 3, 2),
        (2, 40, 60, 0, -1),
        (3, -1, 60, 1, 2),
    ]
    names = ("id", "submit", "run", "status", "queue")
    text = "".join(job.format(**dict(zip(names, row, strict=True))) for row in rows)
    log = read(tmp_path, "swf", text)
    assert (log.submit_s.tolist(), log.duration_s.tolist()) == ([0.0, 30.0], [300.0, 60.0])
    assert (list(log.queue), log.left_out) == (["2", ""], 3)


def test_a_pod_that_still_ran_at_the_logs_end_has_no_run_time_yet(tmp_path: Path) -> None:
    """The log gives its own end as the deletion of such pods; others ran when they were deleted."""
    log = read(
        tmp_path,
        "alibaba-gpu-2023",
        "name,num_gpu,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "a,1,,LS,Running,0,900,0\nb,1,,LS,Running,0,300,100\nc,2,,BE,Succeeded,0,900,100\nd,1,,LS,Pending,5,,\n",
    )
    assert (log.duration_s.tolist(), log.left_out) == ([200.0, 800.0], 2)


def test_what_sacct_prints(tmp_path: Path) -> None:
    log = read(tmp_path, "sacct", SACCT)
    assert (log.submit_s.tolist(), log.gpus.tolist(), list(log.queue)) == ([0, 60], [8, 2], ["b", "a"])
    assert (log.waited_s.tolist(), log.left_out) == ([30.0, 60.0], 1)
    assert list(log.types) == [("a100",), ()]


def test_steps_of_a_job_are_no_jobs(tmp_path: Path) -> None:
    step = "|2026-01-01T00:02:00|2026-01-01T00:02:00|300||cpu=4,gres/gpu:a100=2,gres/gpu=2\n"
    log = read(tmp_path, "sacct", SACCT.replace("ReqTRES", "AllocTRES") + "7.batch" + step + "7.0" + step)
    assert (log.gpus.tolist(), log.left_out) == ([8, 2], 1)


def test_a_job_that_still_runs_has_no_run_time_yet(tmp_path: Path) -> None:
    """sacct shows what it has used until now, and no end."""
    head, *rows = SACCT.splitlines()
    ends = ["2026-01-01T01:00:00", "Unknown", "Unknown"]
    text = "\n".join([f"{head}|End", *(f"{row}|{end}" for row, end in zip(rows, ends, strict=True))])
    log = read(tmp_path, "sacct", text)
    assert (len(log.gpus), log.left_out) == (1, 2)
    with pytest.raises(TraceError, match="no job has started and ended"):
        read(tmp_path, "sacct", text.replace(ends[0], "Unknown"))


def test_sacct_may_show_elapsed_time_states_raw_ids_and_both_kinds_of_gpus(tmp_path: Path) -> None:
    row = "{}|2026-01-01T00:00:00|2026-01-01T00:00:00|{}|{}|a|{}|{}\n"
    rows = [
        ("7", "1-02:03:04", "COMPLETED", "gres/gpu=2", "gres/gpu:a100=2,gres/gpu=2"),
        ("7.batch", "1-02:03:04", "COMPLETED", "", "gres/gpu:a100=2,gres/gpu=2"),
        ("8_3", "00:10:00", "CANCELLED by 1001", "cpu=4", "gres/gpu:v100=1"),
        ("9", "02:00:00", "RUNNING", "gres/gpu=4", "gres/gpu=4"),
    ]
    head = "JobIDRaw|Submit|Start|Elapsed|State|Partition|ReqTRES|AllocTRES\n"
    log = read(tmp_path, "sacct", head + "".join(row.format(*cells) for cells in rows))
    assert (log.duration_s.tolist(), log.gpus.tolist()) == ([93_784, 600], [2, 1])
    assert (list(log.types), log.left_out) == ([(), ("v100",)], 1)


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("gres/gpu:a100=2,gres/gpu:v100=1,gres/gpu=3", 3),
        ("gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1", 3),
        ("cpu=4,gres/gpu:a100=2,gres/gpu:v100=1", 3),
    ],
)
def test_gpus_of_several_types_are_added(tmp_path: Path, tres: str, gpus: int) -> None:
    log = read(tmp_path, "sacct", SACCT.replace("cpu=4,gres/gpu:a100=8,gres/gpu=8", tres))
    assert log.gpus.tolist() == [gpus, 2]


@pytest.mark.parametrize(("form", "text"), [("swf", SWF), ("sacct", SACCT)])
def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path, form: str, text: str) -> None:
    plain, windows = read(tmp_path, form, text), read(tmp_path, form, "\ufeff" + text.replace("\n", "\r\n"))
    assert (windows.gpus.tolist(), windows.queue) == (plain.gpus.tolist(), plain.queue)


@pytest.mark.parametrize(("form", "text"), [("swf", SWF), ("sacct", SACCT)])
def test_a_log_may_be_gzipped_as_archives_keep_it(tmp_path: Path, form: str, text: str) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert FORMATS[form](path).gpus.tolist() == read(tmp_path, form, text).gpus.tolist()
    path.write_bytes(gzip.compress(text.encode())[:-9])
    with pytest.raises(TraceError, match="cut short or damaged"):
        FORMATS[form](path)


def test_more_text_than_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_logs, "MOST_TEXT_BYTES", job_logs.MIB)
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(SWF.encode() + b";" * job_logs.MIB))
    with pytest.raises(TraceError, match="more than 1 MiB of text"):
        FORMATS["swf"](path)


def test_other_times_than_iso_8601_are_no_jobs_that_never_started(tmp_path: Path) -> None:
    """SLURM_TIME_FORMAT sets sacct's times. Such jobs were left out as not ended."""
    with pytest.raises(TraceError, match="column Submit: expected times such as"):
        read(tmp_path, "sacct", re.sub(r"2026-01-01T00:0\d:\d\d", "1767225600", SACCT))
    relative = SACCT.replace("2026-01-01T00:00:30", "00:00:30")
    with pytest.raises(TraceError, match="line 3, column Start: '00:00:30', expected an ISO 8601 time"):
        read(tmp_path, "sacct", relative)


def test_pods_with_an_empty_job_are_no_gang(tmp_path: Path) -> None:
    pod = ",2026-01-01T00:00:00Z,2026-01-01T00:00:05Z,2026-01-01T00:01:05Z,1\n"
    log = read(
        tmp_path, "kubernetes", "NAMESPACE,JOB,CREATED,STARTED,FINISHED,GPUS\n" + f"a,{pod}a,{pod}a,b{pod}"
    )
    assert log.gpus.tolist() == [1, 1, 1]


def test_pods_that_follow_one_another_do_not_add_up_their_gpus(tmp_path: Path) -> None:
    """A pod that failed stays in the list beside the one that took its place."""
    rows = [("10:00", "10:10", 4), ("10:10", "12:00", 4), ("10:20", "12:00", 2)]
    pods = [f"job,2026-01-01T09:00:00Z,2026-01-01T{a}:00Z,2026-01-01T{b}:00Z,{n}\n" for a, b, n in rows]
    head = "JOB,CREATED,STARTED,FINISHED,GPUS\n"
    retried = read(tmp_path, "kubernetes", head + "".join(pods[:2]))
    assert (retried.gpus.tolist(), retried.duration_s.tolist()) == ([4], [7200])
    assert retried.waited_s.tolist() == [3600]
    gang = read(tmp_path, "kubernetes", head + "".join(pods))
    assert (gang.gpus.tolist(), gang.duration_s.tolist()) == ([6], [6000])


KUBERNETES = """\
NAMESPACE  JOB       CREATED                STARTED                FINISHED               GPUS
vision     resnet    2026-01-01T00:00:00Z   2026-01-01T00:01:00Z   2026-01-01T01:00:00Z   4,<none>
vision     resnet    2026-01-01T00:00:05Z   2026-01-01T00:02:00Z   2026-01-01T01:02:00Z   4,<none>
speech     <none>    2026-01-01T00:00:10Z   2026-01-01T00:00:10Z   2026-01-01T00:00:40Z   1
speech     open      2026-01-01T00:00:20Z   2026-01-01T00:00:20Z   <none>                 1
web        <none>    2026-01-01T00:00:20Z   2026-01-01T00:00:20Z   2026-01-01T00:00:40Z   <none>
"""


def test_pods_of_kubernetes_are_gangs_by_their_job(tmp_path: Path) -> None:
    log = read(tmp_path, "kubernetes", KUBERNETES)
    assert (log.submit_s.tolist(), log.gpus.tolist(), list(log.queue)) == (
        [0, 10],
        [8, 1],
        ["vision", "speech"],
    )
    assert (log.duration_s.tolist(), log.waited_s.tolist()) == ([3600.0, 30.0], [120.0, 0.0])
    assert log.left_out == 2


def test_jobs_of_kubernetes_as_csv_count_their_pods(tmp_path: Path) -> None:
    text = (
        "CREATED,STARTED,FINISHED,GPUS,PARALLELISM\n"
        '2026-01-01T00:00:00Z,2026-01-01T00:00:05Z,2026-01-01T00:01:05Z,"2,1",4\n'
    )
    log = read(tmp_path, "kubernetes", text)
    assert (log.gpus.tolist(), log.duration_s.tolist(), log.waited_s.tolist()) == ([12], [60.0], [5.0])


def test_the_surf_week_counts_cores(tmp_path: Path) -> None:
    text = "id,submission_time_ms,duration_ms,cpu_count\n7,5000,60000,16\n8,2000,30000,16\n"
    log = read(tmp_path, "surf", text)
    assert (log.submit_s.tolist(), log.duration_s.tolist(), log.gpus.tolist()) == ([0, 3], [30, 60], [16, 16])


@pytest.mark.parametrize(
    ("form", "text", "problem"),
    [
        ("kubernetes", "CREATED STARTED\n", "no jobs below the header"),
        ("kubernetes", "CREATED STARTED\na\n", "line 2: other fields than the header"),
        ("kubernetes", "CREATED STARTED\na b\n", "no column 'FINISHED'"),
        ("kubernetes", "CREATED CREATED\na b\n", "line 1: a column appears twice"),
        ("sacct", SACCT + "\n\n7|too|few\n", "line 7: other fields than the header; make it with sacct"),
        ("sacct", SACCT + "\n".join(["", SACCT.splitlines()[1].replace("T", "x", 1)]), "line 6, column "),
        (
            "kubernetes",
            "CREATED STARTED FINISHED GPUS\na b c x\n",
            "line 2, column GPUS: 'x', expected whole",
        ),
        ("kubernetes", "CREATED STARTED FINISHED GPUS\na b <none> 1\n", "no job has ended"),
        ("kubernetes", "CREATED STARTED FINISHED GPUS\na b c 1\n", "column CREATED: expected times"),
        ("csv", "submit_s,duration_s,gpus\n0,x,1\n", "line 2, column duration_s: 'x'"),
        ("csv", "submit_s,gpus\n0,1\n", "no column 'duration_s'"),
        ("csv", "submit_s,duration_s,gpus\n0,5,0\n", "no job with at least one GPU"),
        ("csv", "submit_s,duration_s,gpus\n0,5,1.5\n", "line 2, column gpus: '1.5', expected a whole number"),
        ("swf", "1 2 3\n", "line 1: 3 fields, expected 18"),
        ("swf", SWF.replace("1 10 5", "1 inf 5"), "line 2: expected finite numbers"),
        ("swf", SWF.replace("1 1 2 1", "1 1 nan 1"), "line 2: expected finite numbers"),
        ("swf", SWF.replace("100 4", "100 1e30"), "line 2: expected finite numbers"),
        ("swf", "; only words\n", "no jobs"),
        ("sacct", "JobID|Submit\n1\n", "line 2: other fields"),
        ("sacct", "JobID|Submit\n1|2\n", "no column Start; make it with sacct -X -P -o JobID"),
        ("sacct", SACCT.replace("ElapsedRaw", "Elapsed"), "line 2, column Elapsed: '300', expected a time"),
        ("csv", "submit_s,duration_s,gpus\n0,3.6e12,1\n", "3.6e+12 s after the first submission; are"),
        ("csv", "submit_s,duration_s,gpus\n0,1,1\n1e12,1,1\n", "1e+12 s after the first submission; are"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, form: str, text: str, problem: str) -> None:
    with pytest.raises(TraceError) as error:
        read(tmp_path, form, text)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_the_public_data_sets(public_data: Callable[[str], Path]) -> None:
    philly = FORMATS["philly"](public_data("philly_jobs") / "philly_jobs.csv.gz")
    assert len(philly.gpus) == 40_222
    assert int(philly.gpus.max()) == 128
    pods = FORMATS["alibaba-gpu-2023"](public_data("alibaba_gpu_2023") / "openb_pod_list_default.csv.gz")
    assert 0 < len(pods.gpus) < 8_152
    assert (pods.waited_s >= 0).all()
    table = public_data("gavel_throughputs") / "gavel_isolated_throughput.csv"
    with pytest.raises(TraceError, match="say which source to take"):
        throughputs.read(table)
    speeds = throughputs.read(table, "gavel_simulation")
    assert speeds.types == ("k80", "p100", "v100")
    assert len(speeds.models) == 17  # of the 26 of the source
    assert sorted(speeds.steps_per_s) == [1, 2, 4, 8]
    assert np.isfinite(speeds.steps_per_s[1]).all()


def test_a_spread_speed_that_is_missing_or_0_is_that_of_the_same_gpus_together(tmp_path: Path) -> None:
    # A gang would hold its GPUs for ever at a speed of 0.
    path = tmp_path / "speeds.csv"
    path.write_text(
        "gpu,placement,model,batch_size,num_gpus,throughput_steps_per_s\n"
        "k80,consolidated,m,16,4,8\nk80,unconsolidated,m,16,4,0\nk80,consolidated,n,16,4,6\n"
        "k80,consolidated,o,16,4,8\nk80,unconsolidated,o,16,4,4\n"
    )
    assert throughputs.read(path).steps_per_s[4][:, 0].tolist() == [[8, 8], [6, 6], [8, 4]]


def test_numbers_of_gpus_of_measured_speeds_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "speeds.csv"
    head = "gpu,placement,model,batch_size,num_gpus,throughput_steps_per_s\n"
    path.write_text(f"{head}k80,consolidated,m,16,1.0,8\nk80,consolidated,m,16,2.0,15\n")
    assert sorted(throughputs.read(path).steps_per_s) == [1, 2]
    path.write_text(f"{head}k80,consolidated,m,16,1.5,8\n")
    with pytest.raises(TraceError, match=r"line 2, column num_gpus: '1\.5', expected a whole number"):
        throughputs.read(path)
