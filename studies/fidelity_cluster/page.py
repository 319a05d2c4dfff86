"""docs/results/fidelity-cluster.md: the cluster twin beside real training jobs and a real Slurm.

For: `python -m studies fidelity-cluster`. Not for: running (lab.cluster) or the rule (lab.cluster.validate).
The machine's speed changes from hour to hour. So each run begins with a calibration of the machine: how fast
it starts and trains the jobs. The run itself is no part of it.
Real runs are measurements: they are stored, and the twin of the present code is compared with them. The same
command continues where it stopped.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lab.ask.calibration import Calibration
from lab.ask.scenario import RunSpec, Scenario, expand, load, with_overrides
from lab.cluster.calibrate.measure import HEAD, Effort, calibrate
from lab.cluster.calibrate.values import FORM
from lab.cluster.input import cluster_of
from lab.cluster.real import backend
from lab.cluster.run.runner import Drawn, run_all
from lab.cluster.validate.both import (
    DRAWS,
    LIMIT,
    RULE,
    Compared,
    asked_alike,
    compared,
    spread,
    with_draw,
)
from lab.runs.store import Run, RunStore
from studies import harness
from studies.harness import Asked, TimeIsUpError, table
from twinbed import ScenarioError
from twinbed.writing import write_bytes

STORE = harness.ROOT / "studies" / "fidelity_cluster" / "measured"
"""Real runs are kept with the code, so that any machine can compare the present twin with them."""
CELLS = {
    "Real processes": (),
    "Slurm decides": ("cluster.emulation.slurm=decides", "policies=[fifo-backfill]"),
    "Slurm runs": ("cluster.emulation.slurm=runs",),
}
"""Parts of the page and their changes of the scenario, in the order in which they are run."""
EFFORT = Effort(12.0)
"""How long training is measured before each run."""


def make(asked: Asked) -> int:
    """Make the runs that the store lacks, of all parts or of those of `only`, and write the page with all
    stored runs. Raises ScenarioError for an unknown part."""
    titles = parts_of(asked.only)
    store = RunStore(asked.store or STORE)
    check = harness.clock(asked.minutes)
    try:
        for repeat in range(0 if asked.page_only else asked.repeats or 1):
            for title in titles:
                for spec in reversed(expand(scenario(CELLS[title]))):
                    place = place_of_calibration(store, title, spec, repeat)
                    if place.exists() and _runs(store, calibrated(spec, place), repeat):
                        continue
                    check()
                    harness.say(f"fidelity-cluster: {title}: {spec.label}, repeat {repeat}: calibration")
                    _calibrate(place)
                    harness.say(f"fidelity-cluster: {title}: {spec.label}, repeat {repeat}")
                    backend.run(calibrated(spec, place), store, repeat, None)
    except TimeIsUpError as error:
        harness.say(f"fidelity-cluster: {error}")
    harness.publish("fidelity-cluster", document(store), asked.out)
    return 0


def parts_of(only: Sequence[str]) -> list[str]:
    """Return the titles of the named parts in the page's order, of all parts without a name.

    only: titles of parts; case, blanks and hyphens do not matter. Raises ScenarioError for an unknown part.
    """
    names = {_slug(title): title for title in CELLS}
    for one in only:
        if _slug(one) not in names:
            raise ScenarioError(f"fidelity-cluster: --only {one}: no part; there are {', '.join(names)}")
    asked = {_slug(one) for one in only} or set(names)
    return [title for name, title in names.items() if name in asked]


def _slug(text: str) -> str:
    """Return a text in lower case, with one hyphen where it has blanks and signs."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())


def _calibrate(place: Path) -> None:
    """Measure the machine, and write its calibration."""
    text = FORM.write(calibrate("cluster", EFFORT, lambda *_: None), HEAD).encode()
    place.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(place, text)


def place_of_calibration(store: RunStore, title: str, spec: RunSpec, repeat: int) -> Path:
    """Return the file of the machine's calibration for a run, in a folder beside the store of the runs."""
    name = _slug(f"{title} {spec.label} {repeat}")
    return store.root.with_name(f"{store.root.name}-calibrations") / f"{name}.toml"


def scenario(changes: Sequence[str]) -> Scenario:
    """Return the shipped scenario with a part's changes."""
    return with_overrides(load("cluster_testbed"), changes)


def calibrated(spec: RunSpec, place: Path) -> RunSpec:
    """Return the same question for the machine of a calibration file."""
    return replace(spec, calibration=FORM.load(str(place)))


def real(store: RunStore) -> list[Run]:
    """Return the real runs that are stored."""
    return [run for run in store.runs() if run.manifest["backend"] == backend.NAME]


def _runs(store: RunStore, spec: RunSpec, repeat: int) -> list[Run]:
    """Return the stored real runs of a question."""
    return [run for run in real(store) if run.manifest["repeat"] == repeat and asked_alike(run, spec)]


def _measured(store: RunStore, title: str, spec: RunSpec) -> Iterator[tuple[RunSpec, list[Run]]]:
    """Yield the question with the calibration of each repeat, and the repeat's stored run."""
    for repeat in itertools.count():
        place = place_of_calibration(store, title, spec, repeat)
        if not place.exists():
            return
        asked = calibrated(spec, place)
        if runs := _runs(store, asked, repeat):
            yield asked, runs


def document(store: RunStore) -> str:
    """Return the page's text."""
    rows: dict[str, list[Compared]] = {}
    other_code: list[str] = []
    calibrations: list[Calibration] = []
    machines: list[str] = []
    with TemporaryDirectory(prefix="twinbed-") as folder:
        for title, changes in CELLS.items():
            twins: list[Run] = []
            mine: list[Run] = []
            for spec in expand(scenario(changes)):
                for asked, runs in _measured(store, title, spec):
                    mine += runs
                    calibrations.append(asked.calibration)
                    machines += [_machine(run) for run in runs]
                    other_code += [f"{title}: {spec.label}"] * _other_code(asked, runs)
                    for draw in range(DRAWS):
                        drawn = [with_draw(asked, draw)]
                        twins += run_all(drawn, RunStore(folder), fresh=True, progress=None)
            rows[title] = compared(scenario(changes), twins, mine)
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
        f"The twin predicts {near} of {len(every)} measured mean job completion times (JCT) within "
        f"{LIMIT:.0%}.",
        f"It ranks the policies as the testbed does in {sum(map(all, several))} of {len(several)} questions "
        "with more than one policy.",
        _bias(every),
    )
    conditions = (
        RULE,
        f"The twin draws the times of starts from the measured ones. Its JCT is the mean of {DRAWS} draws. "
        "Its spread is the difference of the longest and the shortest JCT, relative to the mean. A real run "
        "is one draw of this kind. Real training speed: how fast the real jobs trained, relative to the "
        "calibration made directly before the run.",
        "Jobs: 40 of the seven shipped ones, really trained; a GPU is a process with a CPU quota of 0.1 "
        "cores times the job's speed on that type. Times are of the cluster: a second of the machine stands "
        "for 60, so a start of 4 s counts as 4 minutes on both sides (`times` of the calibration). Loads: "
        "jobs per hour of the cluster. Preemption: SIGTERM, a checkpoint, a new process on other servers.",
        _calibrated(calibrations),
        "Slurm decides: its backfill replaces ours on the same jobs. Slurm runs: our scheduler decides, "
        "and Slurm starts, requeues and moves the processes. A missing line was not run yet.",
        *_told_code(other_code),
        "Machine: "
        + "; ".join(dict.fromkeys(machines))
        + ". No figure is corrected for the machine's other work: a quota is an upper bound and no "
        "guarantee. A process that starts has no quota. Starts share the cores that the running jobs leave, "
        "on both sides.",
    )
    return harness.page(
        "fidelity-cluster", "Clusters: the twin beside real training jobs", answer, parts, conditions
    )


def _machine(run: Run) -> str:
    facts = run.manifest["testbed"]
    return f"{facts['cpus']} × {facts['cpu_model']}"


def _other_code(spec: RunSpec, runs: Sequence[Run]) -> bool:
    """Return whether a real run of this question was decided by other code of the scheduler than the present,
    or by unknown code."""
    present = backend.scheduler_sha256(Drawn(cluster_of(spec.scenario), spec.seed).scheduler(spec.policy))
    codes = [run.manifest.get("scheduler_sha256") for run in runs]
    return any(code not in ("", present) for code in codes)


def _told_code(rows: Sequence[str]) -> list[str]:
    if not rows:
        return []
    return [
        "The twin has the present code of the schedulers. The real runs of these rows had other code, "
        f"or were made before the code was recorded: {'; '.join(rows)}."
    ]


def _calibrated(made: Sequence[Calibration]) -> str:
    """Return sentences on the calibrations of the machine."""
    if not made:
        return "No machine was calibrated."
    starts, leaves, speeds = (
        [one.values[key].value for one in made]
        for key in ("times.start_x1_s", "times.leave_x1_s", "training.text_lstm_x1")
    )
    return (
        "The machine's speed changes from hour to hour. So each run has a calibration of its own, measured "
        f"directly before it. Median time until a job starts: {min(starts):.3g} to {max(starts):.3g} s, and "
        f"until one that is told to end has ended: {min(leaves):.3g} to {max(leaves):.3g} s. Training "
        f"speed of text_lstm: {min(speeds):.3g} to {max(speeds):.3g} steps/core/s. A job's steps follow from "
        "the speed that was measured."
    )


def _bias(rows: Sequence[Compared]) -> str:
    if not rows:
        return "Nothing was measured yet."
    errors = [row.error for row in rows]
    return f"Its errors are from {min(errors):+.0%} to {max(errors):+.0%}; below 0, real jobs took longer."


def _table(rows: Sequence[Compared]) -> str:
    header = (
        *("policy", "load", "real runs", "twin JCT (s)", "twin's spread", "real JCT (s)", "error"),
        *(
            "preemptions twin, real",
            "starts of a job twin, real (s)",
            "place twin, real",
            "real training speed",
            "within 10 %",
        ),
    )
    return table(
        header,
        [
            [
                row.policy,
                row.variant.rpartition("=")[2],
                len(row.testbed_s),
                f"{np.mean(row.twin_s):.0f}",
                f"{spread(row.twin_s):.0%}",
                f"{np.mean(row.testbed_s):.0f}",
                f"{row.error:+.1%}",
                f"{row.twin_preemptions:.0f}, {row.testbed_preemptions:.0f}",
                f"{row.twin_starts_s:.0f}, {row.testbed_starts_s:.0f}",
                f"{row.twin_place}, {row.testbed_place}",
                "–" if math.isnan(row.training_speed) else f"{row.training_speed:.0%}",
                "yes" if row.agrees else "no",
            ]
            for row in rows
        ],
    )
