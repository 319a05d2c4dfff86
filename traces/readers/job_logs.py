"""Read logs of training jobs: when each was submitted, how long it ran, and how many GPUs it had.

For: Microsoft's Philly trace (msr-fiddle/philly-traces, CC-BY-4.0, as the table of the Sia artifact),
Alibaba's GPU cluster of 2023 (alibaba/clusterdata, for research or study), the standard workload format
(Feitelson's Parallel Workloads Archive), what Slurm's `sacct --parsable2` and Kubernetes' `kubectl get`
print, the SURF HPC week of OpenDC (MIT), and a plain CSV. Not for: running them. Jobs without GPUs or without
a run time are left out and counted. Times begin with the first submission.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces import gzipped
from traces.readers import table
from traces.schema import Floats
from twinbed import TraceError
from twinbed.files import MIB, as_text

MOST_TEXT_BYTES = 256 * MIB

_LONGEST_S = 1e9
"""Longest time from the first submission to the end of a job, s: 32 years. Rounds would never get there."""


@dataclass(frozen=True, slots=True)
class JobLog:
    """n jobs in the order of submission.

    submit_s: time since the first submission, s, float64[n].
    duration_s: run time, s, float64[n].
    gpus: number of GPUs, int64[n].
    queue, model: name of its queue, and of the model that it trains; "" if unknown.
    types: names of the GPU types that it may have; empty: all.
    waited_s: time that it really waited, s, float64[n]; NaN if unknown.
    left_out: number of rows without GPUs or without a run time.
    notes: what the log's reader left out of the jobs, one sentence each.
    """

    submit_s: Floats
    duration_s: Floats
    gpus: NDArray[np.int64]
    queue: Sequence[str]
    model: Sequence[str]
    types: Sequence[tuple[str, ...]]
    waited_s: Floats
    left_out: int
    notes: tuple[str, ...] = ()


def read_philly(path: Path) -> JobLog:
    """Return the jobs of philly_jobs.csv(.gz); the virtual cluster is the queue."""
    columns = ("submit_time", "duration_s", "num_gpus", "virtual_cluster")
    rows = table.read_known(path, columns, columns[1:3], submit_time="str", virtual_cluster="str")
    submit_s = _clock_s(path, rows["submit_time"])
    return _log(path, submit_s, rows["duration_s"], rows["num_gpus"], queue=rows["virtual_cluster"])


def read_alibaba(path: Path) -> JobLog:
    """Return the pods of openb_pod_list_default.csv(.gz). A part of a GPU counts as a whole one.

    A pod that still ran when the log ended has that end as its deletion. It is left out.
    """
    numbers = ("num_gpu", "creation_time", "deletion_time", "scheduled_time")
    texts = ("gpu_spec", "qos", "pod_phase")
    rows = table.read_known(path, (*numbers, *texts), numbers[:2], **dict.fromkeys(texts, "str"))
    types = [tuple(filter(None, spec.split("|"))) for spec in rows["gpu_spec"]]
    waited = rows["scheduled_time"] - rows["creation_time"]
    end = rows["deletion_time"]
    runs = (rows["pod_phase"] == "Running") & (end == end.max())
    duration = (end - rows["scheduled_time"]).mask(runs)
    return _log(
        path, rows["creation_time"], duration, rows["num_gpu"], rows["qos"], types=types, waited=waited
    )


def read_csv(path: Path) -> JobLog:
    """Return the jobs of a CSV with the columns submit_s, duration_s and gpus, and optionally queue, model
    and types (`a|b`). A note names its other columns."""
    needed, texts = ("submit_s", "duration_s", "gpus"), ("queue", "model", "types")
    names = table.header(path)
    extra = [name for name in texts if name in names]
    unread = [name for name in names if name not in (*needed, *texts)]
    rows = table.read_known(path, (*needed, *extra), needed, **dict.fromkeys(extra, "str"))
    part = (rows["gpus"] % 1 != 0).to_numpy()
    table.refuse(path, rows["gpus"].astype("str"), part, "a whole number")
    types = None
    if "types" in rows:
        types = [tuple(filter(None, map(str.strip, text.split("|")))) for text in rows["types"]]
    columns = {name: rows[name] for name in ("queue", "model") if name in rows}
    log = _log(path, rows["submit_s"], rows["duration_s"], rows["gpus"], types=types, **columns)
    notes = (f"Columns of the log that are not read: {', '.join(unread)}",) if unread else ()
    return replace(log, notes=(*log.notes, *notes))


_SWF_FIELDS = 18
_SWF_PARTS = (2, 3, 4)
"""Statuses of lines that describe a part of a job. Another line describes the whole job."""


def read_swf(path: Path) -> JobLog:
    """Return the jobs of a file in the standard workload format. Its processors stand for GPUs.

    Lines that describe a part of a job are left out, because there is one for the whole job.
    """
    rows = []
    for number, line in _lines(path):
        if line.lstrip().startswith(";"):
            continue
        fields = line.split()
        try:
            values = [float(field) for field in fields]
        except ValueError:
            raise TraceError(f"{path}: line {number}: not a line of numbers") from None
        if not all(abs(value) <= table.LARGEST for value in values):
            raise TraceError(f"{path}: line {number}: expected finite numbers, and -1 for what is not known")
        if len(fields) != _SWF_FIELDS:
            raise TraceError(f"{path}: line {number}: {len(fields)} fields, expected {_SWF_FIELDS}")
        # Fields 2 to 5 are submit time, wait, run time and processors; field 8 is the requested processors,
        # 11 the status, 15 the queue.
        rows.append((*values[1:5], values[7], values[10], values[14]))
    if not rows:
        raise TraceError(f"{path}: no jobs; expected lines of {_SWF_FIELDS} numbers")
    frame = pd.DataFrame(rows, columns=["submit", "wait", "run", "had", "asked", "status", "queue"])
    gpus = frame["had"].where(frame["had"] > 0, frame["asked"])
    waited = frame["wait"].where(frame["wait"] >= 0)
    queue = frame["queue"].astype(int).astype(str).where(frame["queue"] >= 0, "")
    run_s = frame["run"].mask(frame["status"].isin(_SWF_PARTS) | (frame["submit"] < 0))
    return _log(path, frame["submit"], run_s, gpus, queue, waited=waited)


_SACCT = "make it with sacct -X -P -o JobID,Submit,Start,End,ElapsedRaw,Partition,ReqTRES"
_GPUS = re.compile(r"gres/gpu(:[^=,]+)?=(\d+)")
_ELAPSED = r"^(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)$"
_NEVER = ("Unknown", "None", "")
"""Cells of sacct for a moment that has not come."""
_NOT_OVER = ("PENDING", "RUNNING", "SUSPENDED", "RESIZING")
"""States of jobs that have not ended, by the page of sacct."""


def read_sacct(path: Path) -> JobLog:
    """Return the jobs that `sacct -X -P -o JobID,Submit,Start,End,ElapsedRaw,Partition,ReqTRES` printed.

    Elapsed may replace ElapsedRaw, and AllocTRES ReqTRES; with both, AllocTRES counts where ReqTRES has no
    GPUs. A job with `gres/gpu:a100=2` may only have GPUs of type a100. Jobs that never started are left out,
    and, if there is a column End or State, those that have not ended. So are the steps of a job (`7.batch`),
    which sacct prints without -X: they had the job's GPUs.
    """
    cells = [(number, line.split("|")) for number, line in _lines(path)]
    rows = _table(path, cells, _SACCT)
    for text in ("Submit", "Start", "ElapsedRaw or Elapsed", "Partition", "ReqTRES or AllocTRES"):
        if not set(text.split(" or ")) & set(rows):
            raise TraceError(f"{path}: no column {text}; {_SACCT}")
    for name in {"JobID", "JobIDRaw"} & set(rows):
        rows = rows[~rows[name].str.contains(".", regex=False)]
    past = rows[[name for name in ("Start", "End") if name in rows]]
    over = ~past.isin(_NEVER).any(axis=1)
    if "State" in rows:
        over &= ~rows["State"].str.startswith(_NOT_OVER)
    rows = rows[over]
    if rows.empty:
        raise TraceError(f"{path}: no job has started and ended")
    submit_s = _clock_s(path, rows["Submit"])
    first, *more = (rows[name] for name in ("ReqTRES", "AllocTRES") if name in rows)
    tres = first.where(first.map(_gpus_of_tres) > 0, *more) if more else first
    gpus = tres.map(_gpus_of_tres)
    types = [tuple(sorted({kind[1:] for kind, _ in _GPUS.findall(text) if kind})) for text in tres]
    waited = pd.Series(_clock_s(path, rows["Start"], rows["Submit"]) - submit_s)
    log = _log(path, submit_s, _elapsed_s(path, rows), gpus, rows["Partition"], types=types, waited=waited)
    return replace(log, left_out=log.left_out + int((~over).sum()))


def read_surf(path: Path) -> JobLog:
    """Return the jobs of surf_tasks.csv(.gz), the SURF HPC week by way of OpenDC. Its cores stand for GPUs.

    It has neither users nor waits. A time that counts as a submission may have been a start.
    """
    names = ("submission_time_ms", "duration_ms", "cpu_count")
    rows = table.read_known(path, names, names)
    return _log(path, rows[names[0]] / 1000, rows[names[1]] / 1000, rows[names[2]])


_KUBERNETES = ("CREATED", "STARTED", "FINISHED", "GPUS")


def read_kubernetes(path: Path) -> JobLog:
    """Return the jobs of what `kubectl get pods` or `kubectl get jobs` printed with `-o custom-columns`.

    It is a table of kubectl or a CSV, with the columns CREATED, STARTED, FINISHED and GPUS. Optional columns
    are NAMESPACE (the queue), JOB (its pods are one gang, which has the most GPUs that they had at once, and
    waits until it has them) and PARALLELISM (number of pods of a job). `<none>` is a missing value. GPUS may
    list several containers (`4,<none>`), in a CSV within quotes. Pods that have not ended are left out
    together with their gang.
    """
    lines = _lines(path)
    comma = bool(lines) and "," in lines[0][1]
    try:
        cells = [(number, next(csv.reader([line])) if comma else line.split()) for number, line in lines]
    except csv.Error as error:
        raise TraceError(f"{path}: not CSV ({error})") from None
    rows = _table(path, cells, "make it with kubectl get pods -o custom-columns")
    table.require(path, list(rows.columns), _KUBERNETES)
    gpus = pd.Series([_gpus_of(path, line, cell) for line, cell in rows["GPUS"].items()], index=rows.index)
    if "PARALLELISM" in rows:
        gpus = gpus * table.numbers(path, rows["PARALLELISM"])
    queue = rows["NAMESPACE"] if "NAMESPACE" in rows else pd.Series("", rows.index)
    alone = pd.Series([f"line {line}" for line in rows.index], rows.index)
    job = rows["JOB"].where(~rows["JOB"].isin(_NOTHING), alone) if "JOB" in rows else alone
    ended = ~rows[["STARTED", "FINISHED"]].isin(_NOTHING).any(axis=1)
    whole = ended.groupby([queue, job]).transform("all")
    if not whole.any():
        raise TraceError(f"{path}: no job has ended")
    rows, gpus, queue, job = rows[whole], gpus[whole], queue[whole], job[whole]
    times = {name: _clock_s(path, rows[name], rows["CREATED"]) for name in _KUBERNETES[:3]}
    gangs = pd.DataFrame({**times, "gpus": gpus, "queue": queue, "job": job}).groupby(["queue", "job"])
    jobs = gangs.agg({"CREATED": "min", "FINISHED": "max"}).reset_index()
    most, since_s = _most_at_once(gangs.ngroup(), times["STARTED"], times["FINISHED"], gpus)
    waited, duration_s = since_s - jobs["CREATED"], jobs["FINISHED"] - since_s
    log = _log(path, jobs["CREATED"], duration_s, most, jobs["queue"], waited=waited)
    return replace(log, left_out=log.left_out + int((~whole).sum()))


def _most_at_once(
    gang: pd.Series[int], begin_s: Floats, end_s: Floats, gpus: pd.Series[float]
) -> tuple[pd.Series[float], Floats]:
    """Return the most GPUs that each gang's pods had at the same time, and since when, s; by gang. A pod may
    take the place of one that failed. An end comes before a begin of the same moment."""
    events = pd.DataFrame(
        {
            "gang": np.tile(gang, 2),
            "at_s": np.concatenate([begin_s, end_s]),
            "change": np.concatenate([gpus, -gpus]),
        }
    ).sort_values(["gang", "at_s", "change"], ignore_index=True)
    held = events["change"].cumsum().groupby(events["gang"])
    return held.max(), events["at_s"].to_numpy()[held.idxmax()]


_NONE, _MOST_DIGITS = "<none>", 9
_NOTHING = (_NONE, "")
"""Cells without a value: kubectl's, and a CSV's."""


def _gpus_of(path: Path, line: object, cell: str) -> float:
    parts = [part for part in cell.split(",") if part not in _NOTHING]
    if not all(part.isdecimal() and len(part) <= _MOST_DIGITS for part in parts):
        raise TraceError(f"{path}: line {line}, column GPUS: {cell!r}, expected whole numbers or {_NONE}")
    return float(sum(map(int, parts)))


FORMATS: Mapping[str, Callable[[Path], JobLog]] = {
    "philly": read_philly,
    "alibaba-gpu-2023": read_alibaba,
    "swf": read_swf,
    "sacct": read_sacct,
    "csv": read_csv,
    "kubernetes": read_kubernetes,
    "surf": read_surf,
}
"""Format → its reader."""


_HEADERS = (("|", {"JobID"}), ("|", {"Submit"}), (",", {"submit_s", "duration_s", "gpus"}))
"""Separators, and columns that show that a file is a log of jobs."""


def begins_log(head: bytes) -> bool:
    """Return whether a file that begins so is rather a log of jobs than a trace: sacct's, SWF or a CSV."""
    first = head.partition(b"\n")[0].decode(errors="replace").strip()
    return first.startswith(";") or any(columns <= {*first.split(by)} for by, columns in _HEADERS)


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines that are not blank, with their numbers."""
    content = gzipped.head(path, MOST_TEXT_BYTES + 1)
    if len(content) > MOST_TEXT_BYTES:
        raise TraceError(f"{path}: more than {MOST_TEXT_BYTES // MIB} MiB of text; keep a part of its jobs")
    text = as_text(content, str(path), TraceError)
    return [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]


def _table(path: Path, cells: Sequence[tuple[int, list[str]]], cure: str) -> pd.DataFrame:
    """Return rows of text by column, indexed by the number of their line. cells: lines, the header first."""
    if len(cells) < 2:
        raise TraceError(f"{path}: no jobs below the header; {cure}")
    header = cells[0][1]
    if len(set(header)) < len(header):
        raise TraceError(f"{path}: line {cells[0][0]}: a column appears twice; {cure}")
    for number, row in cells:
        if len(row) != len(header):
            raise TraceError(f"{path}: line {number}: other fields than the header; {cure}")
    return pd.DataFrame([row for _, row in cells[1:]], [number for number, _ in cells[1:]], header)


def _elapsed_s(path: Path, rows: pd.DataFrame) -> Floats:
    """Return the run times of sacct's jobs, s; Elapsed is [DAYS-]HOURS:MINUTES:SECONDS."""
    if "ElapsedRaw" in rows:
        return table.numbers(path, rows["ElapsedRaw"])
    parts = rows["Elapsed"].str.strip().str.extract(_ELAPSED)
    table.refuse(path, rows["Elapsed"], parts[3].isna().to_numpy(), "a time such as 1-02:03:04")
    return np.asarray(parts.fillna("0").astype("float64").to_numpy() @ (86_400, 3600, 60, 1), np.float64)


def _gpus_of_tres(text: str) -> int:
    """Return the number of GPUs: the total, or the sum over types if there is no total."""
    found = _GPUS.findall(text)
    total = [int(count) for kind, count in found if not kind]
    return total[0] if total else sum(int(count) for _, count in found)


def _clock_s(path: Path, cells: pd.Series[str], first: pd.Series[str] | None = None) -> Floats:
    """Return times as seconds since the earliest time in `first` (None: in `cells`)."""
    times = [table.iso_ns(path, column) for column in (cells, cells if first is None else first)]
    if times[0] is None or times[1] is None:
        raise TraceError(f"{path}: column {cells.name}: expected times such as 2017-09-26 22:24:39")
    return np.asarray((times[0] - times[1].min()) / 1e9, np.float64)


def _log(
    path: Path,
    submit: pd.Series[float] | Floats,
    duration: pd.Series[float] | Floats,
    gpus: pd.Series[float],
    queue: pd.Series[str] | None = None,
    model: pd.Series[str] | None = None,
    types: Sequence[tuple[str, ...]] | None = None,
    waited: pd.Series[float] | None = None,
) -> JobLog:
    n = len(gpus)
    submit_s, duration_s = np.asarray(submit, np.float64), np.asarray(duration, np.float64)
    count = np.asarray(gpus, np.float64)
    kept = np.isfinite(duration_s) & (duration_s > 0) & (count >= 1)
    if not kept.any():
        raise TraceError(f"{path}: no job with at least one GPU and a run time")
    order = np.flatnonzero(kept)[np.argsort(submit_s[kept], kind="stable")]
    last_s = float((submit_s - submit_s[order[0]] + duration_s)[order].max())
    if last_s > _LONGEST_S:
        raise TraceError(
            f"{path}: a job ends {last_s:.6g} s after the first submission; are these milliseconds?"
        )
    queues, models = ([""] * n if cells is None else list(map(str.strip, cells)) for cells in (queue, model))
    allowed = [()] * n if types is None else list(types)
    waited_s = np.full(n, np.nan) if waited is None else np.array(waited, np.float64)
    early = waited_s[order] < 0
    waited_s[waited_s < 0] = np.nan
    notes: tuple[str, ...] = ()
    if early.any():
        notes = (
            f"Jobs that began before their submission, as where a clock went back: {early.sum():,}. Their "
            "waits count as unknown; print the log's times in UTC (TZ=UTC)",
        )
    return JobLog(
        submit_s[order] - submit_s[order[0]],
        duration_s[order],
        np.rint(count[order]).astype(np.int64),
        [queues[row] for row in order],
        [models[row] for row in order],
        [allowed[row] for row in order],
        waited_s[order],
        n - order.size,
        notes,
    )
