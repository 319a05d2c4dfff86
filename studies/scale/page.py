"""docs/results/scale.md: the results of the campaign, and the overhead of a unit.

For: `python -m studies scale`. Not for: the campaign (campaign.py) or the timing (overhead.py).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from lab.engine.local import cores
from lab.runs.code import code_sha256
from lab.runs.files import write_whole
from studies import harness
from studies.harness import Asked
from studies.scale.overhead import Timed, all_timed
from studies.scale.places import places
from twinbed import BackendError

RUNS = 10_000
"""Runs of the page's campaigns unless others are asked for."""
PART = RUNS
"""Runs of one campaign. Its storage lives as long as its process, so only a whole campaign can be kept."""


def make(asked: Asked) -> int:
    """Make the campaigns that are missing, and write the page. Raises BackendError without root."""
    # The processes of a campaign end with it, however this process is stopped.
    signal.signal(signal.SIGTERM, _stop)
    folder = asked.store or harness.STORES / "scale"
    runs, end_s = asked.repeats or RUNS, time.monotonic() + 60 * asked.minutes
    parts = kept(folder)
    while not asked.page_only and (first := sum(part["runs"] for part in parts)) < runs:
        if time.monotonic() > end_s:
            break
        sys.stderr.write(f"scale: runs {first:,} to {min(first + PART, runs):,} of {runs:,}\n")
        parts.append({**measured(range(first, min(first + PART, runs))), "code": code_sha256()})
        keep(folder, "parts", parts)
    if not parts:
        raise BackendError("scale: no campaign is done yet")
    ended = not asked.page_only and sum(part["runs"] for part in parts) >= runs
    if ended or not (folder / "overhead.json").is_file():
        keep(folder, "overhead", [asdict(row) for row in all_timed()])
    rows = [Timed(**row) for row in json.loads((folder / "overhead.json").read_text())]
    found = summed(parts)
    harness.publish("scale", text(found, rows, runs), asked.out)
    return 0 if is_right(found) and found["runs"] >= runs else 1


def _stop(_signal: int, _frame: FrameType | None) -> None:
    """Stop once, as by Ctrl-C, so that a second signal does not stop the clean-up."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def kept(folder: Path) -> list[dict[str, Any]]:
    """Return the campaigns that this code has made."""
    try:
        parts: list[dict[str, Any]] = json.loads((folder / "parts.json").read_text())
    except FileNotFoundError:
        return []
    return [part for part in parts if part["code"] == code_sha256()]


def keep(folder: Path, name: str, content: object) -> None:
    """Store a result under a name."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / f"{name}.json", lambda file: file.write(json.dumps(content, indent=1).encode()))


def summed(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the sums of the campaigns' results, with the faults of the last."""
    counts = [key for key, value in parts[0].items() if isinstance(value, int | float)]
    found = {key: round(sum(part[key] for part in parts), 1) for key in counts}
    return {**found, "sweeps": len(parts), "faults": parts[-1]["faults"]}


def measured(seeds: range) -> dict[str, Any]:
    """Return the result of a campaign of these seeds. Raises BackendError."""
    if os.geteuid() != 0:
        raise BackendError("scale: network namespaces need root")
    with places(2) as made:
        command = [
            sys.executable,
            "-m",
            "studies.scale.campaign",
            made.hub,
            ",".join(made.workers),
            str(seeds.start),
            str(seeds.stop),
        ]
        environment = os.environ | {"PYTHONPATH": str(harness.ROOT)}
        ended = subprocess.run(
            ["ip", "netns", "exec", made.hub, *command],
            capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip
        if ended.returncode:
            raise BackendError(f"scale: {' '.join(ended.stderr.split())[-500:]}")
        found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return found


def is_right(found: dict[str, Any]) -> bool:
    """Return whether every run is there exactly once and identical to the local run."""
    runs = found["runs"]
    whole = found["there"] == found["identical"] == found["rows"] == runs
    return whole and not (found["missing"] or found["unasked"] or found["rows twice"])


def text(found: dict[str, Any], rows: list[Timed], wanted: int) -> str:
    """Return the page."""
    runs = found["runs"]
    once = "Every run was there exactly once" if is_right(found) else "NOT every run was there exactly once"
    two = next(row for row in rows if row.engine == "dask" and row.sleep_s)
    none = next(row for row in rows if row.engine == "dask" and not row.sleep_s)
    answer = [
        f"{once}: {found['there']:,} of {runs:,}, {found['identical']:,} of them identical to the byte with "
        "the same runs made in one process here."
        + (f" The aim was {wanted:,} runs; the others are not made yet." if runs < wanted else ""),
        f"Two Dask workers with units of 1 s reached {two.efficiency:.1%} of the speed of two processes that "
        "only sleep.",
        f"An empty unit cost {1e3 * none.overhead_s:.1f} ms.",
    ]
    counts = harness.table(["what", "number"], [[key, found[key]] for key in found if key not in ("faults",)])
    happened = "\n".join(f"{number}. {line}" for number, line in enumerate(found["faults"], 1))
    timing = harness.table(
        ["engine", "workers", "units", "sleep (s)", "took (s)", "efficiency", "overhead per unit (ms)"],
        [
            [
                row.engine, row.workers, row.units, f"{row.sleep_s:g}", f"{row.took_s:.2f}",
                f"{row.efficiency:.1%}" if row.sleep_s else "–", f"{1e3 * row.overhead_s:.2f}",
            ]
            for row in rows
        ],
    )  # fmt: skip
    parts = [
        "## Every run exactly once",
        "The scheduler, the client and a real S3 server (moto's) ran in one network namespace, two workers "
        "in one each. "
        + (
            "One sweep made all runs, and met all of these faults:"
            if found.get("sweeps", 1) == 1
            else "The runs are divided among sweeps, each with its own seeds and store. Each sweep met all "
            "of these faults; the numbers of runs here are those of the last sweep:"
        ),
        happened,
        counts,
        "A row is a run in the sweep's table. Missing and unasked runs are in only one of the stores. "
        "Identical: the manifests list the same hashes of all tables, and the tables in the S3 store have "
        "these hashes.",
        "## What a unit costs",
        "The units sleep. They are timed after every worker had two.",
        timing,
    ]
    conditions = [
        f"One machine with {cores()} cores carried everything, so the workers of the campaign shared cores "
        "with the S3 server and the scheduler; its seconds say nothing about scaling. Rows `dask, threads` "
        "simulate workers beyond the cores by threads of one worker process that sleep: they show the limits "
        "of the scheduler and the client, not those of so many machines."
    ]
    return harness.page("scale", "Sweeps beyond one machine", answer, parts, conditions)
