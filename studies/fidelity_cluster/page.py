"""docs/results/fidelity-cluster.md: the cluster twin beside real training jobs and a real Slurm.

For: `python -m studies fidelity-cluster`. Not for: running (lab.cluster) or the rule (lab.cluster.validate).
Each part begins with a calibration of the machine, without the runs that are compared: how fast it starts and
trains the jobs.
Real runs are measurements: they are stored, and the twin of the present code is compared with them. The same
command continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lab.ask.scenario import RunSpec, Scenario, expand, load, with_overrides
from lab.cluster.calibrate.measure import HEAD, THOROUGH, calibrate
from lab.cluster.calibrate.values import FORM
from lab.cluster.input import cluster_of
from lab.cluster.real import backend
from lab.cluster.run.runner import Drawn
from lab.cluster.validate.both import LIMIT, RULE, Compared, asked_alike, compared
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from studies import harness
from studies.harness import Asked, TimeIsUpError, table
from twinbed.writing import write_bytes

STORE = harness.STORES / "fidelity-cluster"
CELLS = {
    "Real processes": (),
    "Slurm decides": ("cluster.emulation.slurm=decides", "policies=[fifo-backfill]"),
    "Slurm runs": ("cluster.emulation.slurm=runs",),
}
"""Parts of the page and their changes of the scenario, in the order in which they are run."""


def make(asked: Asked) -> int:
    """Make the runs that the store lacks, and write the page with all stored runs."""
    store = RunStore(asked.store or STORE)
    check = harness.clock(asked.minutes)
    try:
        for repeat in range(0 if asked.page_only else asked.repeats or 1):
            for title, changes in CELLS.items():
                calibration = place_of_calibration(store, title)
                if not calibration.exists():
                    check()
                    harness.say(f"fidelity-cluster: {title}: calibration")
                    _calibrate(calibration)
                for spec in reversed(expand(scenario(changes, calibration))):
                    there = [run for run in real(store) if asked_alike(run, spec)]
                    if not any(run.manifest["repeat"] == repeat for run in there):
                        check()
                        harness.say(f"fidelity-cluster: {title}: {spec.label}, repeat {repeat}")
                        backend.run(spec, store, repeat, None)
    except TimeIsUpError as error:
        harness.say(f"fidelity-cluster: {error}")
    harness.publish("fidelity-cluster", document(store), asked.out)
    return 0


def _calibrate(place: Path) -> None:
    """Measure the machine, and write its calibration."""
    text = FORM.write(calibrate("cluster", THOROUGH, lambda *_: None), HEAD).encode()
    write_bytes(place, text)


def place_of_calibration(store: RunStore, title: str) -> Path:
    """Return the file of the machine's calibration for a part of the page, beside the store of its runs."""
    part = title.lower().replace(" ", "-")
    return store.root.with_name(f"{store.root.name}-calibration-{part}.toml")


def scenario(changes: Sequence[str], calibration: Path) -> Scenario:
    """Return the shipped scenario with a part's changes and a calibration, if there is such a file."""
    own = [f"calibration={calibration.resolve()}"] if calibration.exists() else []
    return with_overrides(load("cluster_testbed"), [*changes, *own])


def real(store: RunStore) -> list[Run]:
    """Return the real runs that are stored."""
    return [run for run in store.runs() if run.manifest["backend"] == backend.NAME]


def document(store: RunStore) -> str:
    """Return the page's text."""
    rows: dict[str, list[Compared]] = {}
    runs, other_code = real(store), []
    for title, changes in CELLS.items():
        asked = scenario(changes, place_of_calibration(store, title))
        mine = [run for run in runs if any(asked_alike(run, spec) for spec in expand(asked))]
        other_code += [f"{title}: {spec.label}" for spec in expand(asked) if _other_code(spec, mine)]
        with TemporaryDirectory(prefix="twinbed-") as folder:
            twins = run_scenario(asked, RunStore(folder), jobs=1) if mine else []
            rows[title] = compared(asked, twins, mine)
    parts = [
        part
        for title, found in rows.items()
        for part in (f"## {title}", _table(found) if found else "Not run yet.")
    ]
    every = [row for found in rows.values() for row in found]
    near = sum(row.agrees for row in every)
    ordered = [
        [row.twin_place == row.testbed_place for row in found if row.variant == variant]
        for found in rows.values()
        for variant in dict.fromkeys(row.variant for row in found)
    ]
    several = [places for places in ordered if len(places) > 1]
    answer = (
        f"Of {len(every)} mean JCTs that were measured, the twin has {near} within {LIMIT:.0%}.",
        f"It has the order of the policies in {sum(map(all, several))} of {len(several)} questions with more "
        "than one policy.",
        _bias(every),
    )
    machine = [run.manifest["testbed"] for run in runs]
    conditions = (
        RULE,
        "Jobs: 40 of the seven shipped ones, really trained; a GPU is a process with a CPU quota of 0.1 "
        "cores times the job's speed on that type. Times are of the cluster: a second of the machine stands "
        "for 60, so a start of 4 s counts as 4 minutes on both sides (`times` of the calibration). Loads: "
        "jobs per hour of the cluster. Preemption: SIGTERM, a checkpoint, a new process on other servers.",
        _calibrated({title: place_of_calibration(store, title) for title in CELLS}),
        "Slurm decides: its backfill replaces ours on the same jobs. Slurm runs: our scheduler decides, "
        "and Slurm starts, requeues and moves the processes. A missing line was not run yet.",
        *_told_code(other_code),
        "Machine: "
        + "; ".join(dict.fromkeys(f"{facts['cpus']} × {facts['cpu_model']}" for facts in machine))
        + ". No figure is corrected for the machine's other work: a quota is an upper bound and no "
        "guarantee. A process that starts has no quota. Starts share the cores that the running jobs leave, "
        "on both sides.",
    )
    return harness.page(
        "fidelity-cluster", "Clusters: the twin beside real training jobs", answer, parts, conditions
    )


def _other_code(spec: RunSpec, runs: Sequence[Run]) -> bool:
    """Return whether a real run of this question was decided by other code of the scheduler than the present,
    or by unknown code."""
    present = backend.scheduler_sha256(Drawn(cluster_of(spec.scenario), spec.seed).scheduler(spec.policy))
    codes = [run.manifest.get("scheduler_sha256") for run in runs if asked_alike(run, spec)]
    return any(code not in ("", present) for code in codes)


def _told_code(rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    return [
        "The twin has the present code of the schedulers. The real runs of these rows had other code, "
        f"or were made before the code was recorded: {'; '.join(rows)}."
    ]


def _calibrated(places: Mapping[str, Path]) -> str:
    """Return sentences on the calibrated values of the machine in each part."""
    parts: dict[str, list[str]] = {}
    for title, path in places.items():
        if path.exists():
            values = FORM.load(str(path)).values
            times = [f"{values[f'times.{key}'].value:.2f}" for key in ("start_s", "restart_s")]
            parts.setdefault(" and ".join(times), []).append(title)
    if not parts:
        return "The twin has the calibration that ships: this machine was not measured."
    told = "; ".join(f"{times} s ({', '.join(titles)})" for times, titles in parts.items())
    return (
        "The machine's speed changes from hour to hour. So the twin has this machine's calibration for each "
        "part, measured apart from its runs; parts named together have the same one. Median times until a "
        f"job starts and restarts: {told}. The jobs' steps follow from the speeds that were measured."
    )


def _bias(rows: Sequence[Compared]) -> str:
    if not rows:
        return "Nothing was measured yet."
    errors = [row.error for row in rows]
    return f"Its errors are from {min(errors):+.0%} to {max(errors):+.0%}; below 0, real jobs took longer."


def _table(rows: Sequence[Compared]) -> str:
    header = (
        *("policy", "load", "real runs", "twin JCT (s)", "real JCT (s)", "error"),
        *("preemptions twin, real", "starts of a job twin, real (s)", "place twin, real", "within 10 %"),
    )
    return table(
        header,
        [
            [
                row.policy,
                row.variant.rpartition("=")[2],
                len(row.testbed_s),
                f"{row.twin_s:.0f}",
                f"{np.mean(row.testbed_s):.0f}",
                f"{row.error:+.1%}",
                f"{row.twin_preemptions:.0f}, {row.testbed_preemptions:.0f}",
                f"{row.twin_starts_s:.0f}, {row.testbed_starts_s:.0f}",
                f"{row.twin_place}, {row.testbed_place}",
                "yes" if row.agrees else "no",
            ]
            for row in rows
        ],
    )
