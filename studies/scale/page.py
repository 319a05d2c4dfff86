"""docs/results/scale.md: the results of the campaign, and the overhead of a unit.

For: `python -m studies scale`. Not for: the campaign (campaign.py) or the timing (overhead.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.engine.local import cores
from lab.runs.code import code_sha256
from studies import harness
from studies.harness import Asked
from studies.scale.overhead import Timed, all_timed
from studies.scale.places import places
from testbed.containers.interrupts import Interrupts
from twinbed import BackendError
from twinbed.writing import write_bytes

RUNS = 10_000
"""Runs of the page's campaign unless others are asked for."""


def make(asked: Asked) -> int:
    """Make the campaign if it is missing, and write the page. Raises BackendError without root."""
    folder, runs = asked.store or harness.STORES / "scale", asked.repeats or RUNS
    found = kept(folder)
    if not asked.page_only and (found is None or found["runs"] < runs):
        # The campaign's processes end with this process, however it is stopped.
        with Interrupts():
            keep(folder, "overhead", [asdict(row) for row in all_timed()])
            found = {**measured(range(runs)), "code": code_sha256()}
        keep(folder, "campaign", found)
    if found is None:
        raise BackendError("scale: no campaign is done yet")
    rows = [Timed(**row) for row in json.loads((folder / "overhead.json").read_text())]
    harness.publish("scale", text(found, rows, runs), asked.out)
    return 0 if is_right(found) and found["runs"] >= runs else 1


def kept(folder: Path) -> dict[str, Any] | None:
    """Return the campaign that this code has made, if any."""
    try:
        found: dict[str, Any] = json.loads((folder / "campaign.json").read_text())
    except FileNotFoundError:
        return None
    return found if found["code"] == code_sha256() else None


def keep(folder: Path, name: str, content: object) -> None:
    """Store a result under a name."""
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / f"{name}.json", json.dumps(content, indent=1).encode())


def measured(seeds: range, given_up_s: float = 30.0) -> dict[str, Any]:
    """Return the result of a campaign of these seeds. Raises BackendError.

    given_up_s: time after which the scheduler gives a silent worker up, s.
    """
    if os.geteuid() != 0:
        raise BackendError("scale: network namespaces need root")
    with places(2) as made:
        command = [
            sys.executable, "-m", "studies.scale.campaign", made.hub, ",".join(made.workers),
            str(seeds.start), str(seeds.stop), str(given_up_s),
        ]  # fmt: skip
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
    once = "Every run was stored exactly once" if is_right(found) else "NOT every run was stored exactly once"
    two = next(row for row in rows if row.engine == "dask" and row.sleep_s)
    none = next(row for row in rows if row.engine == "dask" and not row.sleep_s)
    answer = [
        f"{once}, through all faults below: {found['there']:,} of {runs:,}. {found['identical']:,} are "
        "identical to the byte with runs made in one process."
        + (f" The aim was {wanted:,} runs; the others are not made yet." if runs < wanted else ""),
        f"Two Dask workers with units of 1 s reached {two.efficiency:.1%} of the speed of two processes that "
        "only sleep.",
        f"A unit without work cost {1e3 * none.overhead_s:.1f} ms.",
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
        "in one each. One sweep made all runs, and met all of these faults:",
        happened,
        counts,
        "There: runs in the S3 store. A row is a run in the sweep's table. Missing runs are only in the "
        "local store, unasked ones only in the S3 store. Identical: the manifests list the "
        "same hashes of all tables, and the tables in the S3 store have these hashes.",
        "## What a unit costs",
        "The units sleep. They are timed after every worker had two.",
        timing,
    ]
    conditions = [
        f"One machine with {cores()} cores carried everything, so the workers of the campaign shared cores "
        "with the S3 server and the scheduler; its seconds say nothing about scaling. In rows `dask, "
        "threads`, sleeping threads of one process stand for workers beyond the cores: these "
        "rows show the limits of the scheduler and the client, not those of so many machines."
    ]
    return harness.page("scale", "Sweeps beyond one machine", answer, parts, conditions)
