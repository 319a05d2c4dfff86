"""Makes cluster runs on the twin: a scenario's jobs once per seed, under one scheduler after another.

For: `run_all`, from RunSpecs with a cluster to Runs in the store. Not for: drawing jobs (jobs.py),
simulating (twin.cluster) or figures (figures.py). Every policy meets the same jobs and the same faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from control.cluster import NEVER_DOWN, Downtime, Outcome, Timing, Workload
from control.scheduler import make, settings, within_quotas
from control.scheduler.model import Flags, Real
from control.scheduler.ports import Scheduler
from lab.ask.calibration import Calibration
from lab.ask.kind import Progress
from lab.ask.policy import PolicySpec
from lab.ask.scenario import RunSpec
from lab.check.driven_fleet import BrokenPromiseError
from lab.check.watched_scheduler import WatchedScheduler
from lab.cluster.calibrate.values import PHASES, phases_s, save_s, spread, step_s
from lab.cluster.input import ClusterInput, EmulationInput, FaultsInput, cluster_of
from lab.cluster.run import figures
from lab.cluster.run.jobs import Jobs, build
from lab.runs.manifest import one_by_one, store_run
from lab.runs.metric import read, summary
from lab.runs.store import Run, RunStore
from traces.fault_rates import TRACE_DAYS, read_downtimes
from twin.cluster.simulation import random_downtime, simulate
from twinbed import InvariantError, ScenarioError
from twinbed.own import OwnCodeError

_ALONE = "isolated"
"""The policy against which finish-time fairness is measured."""


class Drawn:
    """The data that all runs of a question with this seed share: jobs, faults, the seed of decisions, and the
    seed of the times of starts. until: number of the job before which the watched jobs end."""

    def __init__(self, asked: ClusterInput, seed: int) -> None:
        drawn, failing, deciding, starting = np.random.SeedSequence(seed).spawn(4)
        self.asked, self.jobs = asked, build(asked, drawn)
        self.until = min(asked.watched.last or len(self.jobs.workload), len(self.jobs.workload))
        self.downtime = _downtime(asked, failing)
        self.seed = int(deciding.generate_state(1)[0])
        draw = 0 if asked.emulation is None else asked.emulation.draw
        self.starting = int(starting.generate_state(draw + 1)[draw])

    def scheduler(self, policy: PolicySpec) -> Scheduler:
        """Return a new scheduler as the scenario sets it, or one of the user's own."""
        if policy.own is not None:
            watched = WatchedScheduler(self.jobs.cluster, policy.make(self.jobs.cluster, self.seed))
            return within_quotas(policy.label, self.jobs.cluster, watched)
        given = {family: dict(values) for family, values in self.asked.settings.items()}
        given["gavel"] = {"round_s": self.asked.round_s, **given.get("gavel", {})}
        chosen = {family: settings(family, values) for family, values in given.items()}
        return make(policy.name, self.jobs.cluster, self.seed, chosen)

    def with_saves(self, calibration: Calibration) -> Workload:
        """Return the jobs with the work of their regular saves, which emulated jobs do between their steps.

        A job saves after every so many steps, wherever and in however many parts it is trained. So its steps
        say how often it saves. A save at its last step delays nothing.
        """
        load, emulation = self.jobs.workload, self.asked.emulation
        if emulation is None:
            return load
        save_work = emulation.compression * self._of_jobs(save_s, calibration, emulation)
        saves = np.maximum(np.ceil(load.steps / (self.asked.checkpoint_s * load.per_s)) - 1, 0)
        longer = 1 + save_work / self.asked.checkpoint_s
        return replace(load, steps=load.steps + saves * save_work * load.per_s, per_s=load.per_s * longer)

    def _of_jobs(
        self,
        time_s: Callable[[Calibration, str, int, float], float],
        calibration: Calibration,
        emulation: EmulationInput,
    ) -> Real:
        """Return a calibrated time of each job as a gang at a GPU's quota, s, float64[n]."""
        gangs = zip(self.jobs.models, self.jobs.workload.gpus.tolist(), strict=True)
        return np.array([time_s(calibration, model, gpus, emulation.gpu_cores) for model, gpus in gangs])

    def timing(self, calibration: Calibration) -> Timing:
        """Return how time passes. Raises ScenarioError for rounds so short that a restarted job makes no
        progress."""
        asked = self.asked
        if asked.emulation is None:
            return Timing(
                asked.round_s, asked.at_events, asked.restart_s, asked.checkpoint_s, sync_s=asked.sync_s
            )
        longer = asked.emulation.compression
        start_s, restart_s, leave_s = (
            tuple(longer * time_s for time_s in phases_s(calibration, what)) for what in PHASES
        )
        if (most_s := max(restart_s) + max(leave_s)) >= asked.round_s:
            raise ScenarioError(
                f"cluster.round_s: {asked.round_s:g} s, and a restart takes {most_s:.0f} s when "
                "compressed: make rounds longer, or the compression smaller"
            )
        return Timing(
            asked.round_s,
            asked.at_events,
            restart_s,
            asked.checkpoint_s,
            start_s,
            asked.sync_s,
            calibration.values["machine.cores"].value,
            asked.emulation.gpu_cores,
            calibration.values["machine.beside_starts"].value,
            longer * calibration.values["times.end_s"].value,
            spread(calibration),
            leave_s,
            longer * self._of_jobs(step_s, calibration, asked.emulation),
        )


def run_all(
    specs: Sequence[RunSpec], store: RunStore, *, fresh: bool, progress: Progress | None
) -> list[Run]:
    """Return the stored runs of the specs; implements lab.ask.kind.Runner."""
    asked = cluster_of(specs[0].scenario)
    drawn = Drawn(asked, specs[0].seed)
    load, timing = drawn.with_saves(specs[0].calibration), drawn.timing(specs[0].calibration)
    outcomes: dict[PolicySpec, Outcome] = {}

    def outcome(policy: PolicySpec, label: str) -> Outcome:
        if policy not in outcomes:
            told = None if progress is None else partial(progress, label)
            outcomes[policy] = _simulated(drawn, load, policy, timing, told)
        return outcomes[policy]

    def made(spec: RunSpec, identity: Mapping[str, Any], began: float) -> Run:
        alone = outcome(PolicySpec(_ALONE), spec.label) if asked.fairness else None
        done = outcome(spec.policy, spec.label)
        return stored(spec, store, identity, drawn, done, alone, {"backend": "twin"}, began)

    return one_by_one(specs, store, drawn.jobs.sha256, made, fresh=fresh, progress=progress)


def stored(
    spec: RunSpec,
    store: RunStore,
    identity: Mapping[str, Any],
    drawn: Drawn,
    done: Outcome,
    alone: Outcome | None,
    whose: Mapping[str, Any],
    began: float,
) -> Run:
    """Store the results of the jobs, and return the run. alone: the results in equal parts; whose: fields of
    the manifest, with `backend`; began: as in store_run."""
    jobs, asked = drawn.jobs, drawn.asked
    counts = figures.watched(asked.watched, len(jobs.workload))
    metrics = read("lab.cluster")
    values = dict.fromkeys((metric.key for metric in metrics), np.nan)
    values |= figures.metrics(jobs, done, alone, counts)
    remarks = (*_lacks(spec.policy.name, jobs), *done.remarks)
    notes = [*jobs.notes, *(f"{spec.policy.label}: {remark}" for remark in remarks)]
    really_s = jobs.waited_s[counts]
    if np.isfinite(really_s).any():
        notes.append(f"In the log the watched jobs waited {np.nanmean(really_s):,.0f} s in the mean")
    notes += _unsteady(spec.policy.label, jobs, done, counts)
    if asked.faults is not None and done.end_s > asked.faults.end_s:
        notes.append(
            f"No server fails after {asked.faults.end_s / DAY_S:.3g} days (cluster.faults.end_s); the run "
            f"takes {done.end_s / DAY_S:.3g}"
        )
    about_run = {"inputs": list(jobs.inputs), "about": about(asked), "notes": notes, **whose}
    tables = {"summary": summary(metrics, values), **figures.tables(jobs, done, counts)}
    return store_run(spec, store, identity, about_run, values, tables, began)


def _unsteady(label: str, jobs: Jobs, done: Outcome, counts: Flags) -> list[str]:
    """Return a note if the queue grew, so that means of JCT and of waits depend on when jobs stop coming."""
    longer = "grow with the time for which jobs arrive"
    if figures.grew(jobs, done, counts):
        return [
            f"{label}: not steady, the queue still grew; no mean JCT is given, and means of waits {longer}"
        ]
    more, of = figures.left(jobs, done, counts), int(counts.sum())
    if more <= figures.LEFT * of:
        return []
    return [
        f"{label}: not steady, the queue grew by {more:,.0f} of {of:,} jobs; means of JCT and waits {longer}"
    ]


def _lacks(policy: str, jobs: Jobs) -> tuple[str, ...]:
    """Return a note if the policy is about something that the jobs or servers do not have."""
    load = jobs.workload
    if policy in ("gavel-sharing", "gandiva", "fifo-packed") and not load.sharing.kept.any():
        return ("no jobs share GPUs, because no speed of a pair is given (cluster.pair_speed)",)
    if policy == "pollux" and not (load.elastic.kind >= 0).any():
        return ("no job changes its number of GPUs, because none has a goodput (cluster.goodput)",)
    if policy == "gavel-cost" and not jobs.cluster.price_usd_h.any():
        return ("all GPUs cost the same, because no server has a price (price_usd_h)",)
    return ()


def _simulated(
    drawn: Drawn,
    load: Workload,
    policy: PolicySpec,
    timing: Timing,
    progress: Callable[[float], None] | None,
) -> Outcome:
    if policy.name == _ALONE:
        # A divided cluster would not preempt jobs. Taking turns only emulates its parts.
        timing = replace(timing, restart_s=0.0)
    with blamed(policy):
        return simulate(
            drawn.jobs.cluster,
            load,
            drawn.scheduler(policy),
            timing,
            downtime=drawn.downtime,
            until=drawn.until,
            seed=drawn.starting,
            progress=progress,
        )


@contextmanager
def blamed(policy: PolicySpec) -> Iterator[None]:
    """Convert errors of the user's own scheduler into an OwnCodeError that names it."""
    try:
        yield
    except (InvariantError, BrokenPromiseError) as error:
        if policy.own is None:
            raise
        raise OwnCodeError(f"{policy.label}: {error}") from error


def _downtime(asked: ClusterInput, seed: np.random.SeedSequence) -> Downtime:
    faults = asked.faults
    if faults is None:
        return NEVER_DOWN
    types = np.repeat(list(asked.servers), [part.count for part in asked.servers.values()])
    failing = np.flatnonzero(np.isin(types, faults.types or list(asked.servers)))
    number = int(seed.generate_state(1)[0])
    if faults.trace is not None:
        drawn = traced_downtime(faults, failing.size, number)
    else:
        assert faults.per_server_day is not None, "checked when the scenario is read"
        drawn = random_downtime(
            failing.size,
            per_day=faults.per_server_day,
            repair_s=faults.repair_s,
            begin_s=faults.begin_s,
            end_s=faults.end_s,
            seed=number,
        )
    return replace(drawn, server=failing[drawn.server])


def about(asked: ClusterInput) -> str:
    """Return the servers and what fails, in one line."""
    servers = ", ".join(f"{part.count} × {part.gpus} {name}" for name, part in asked.servers.items())
    if asked.faults is None:
        return f"{servers}; no faults"
    where = f" on {', '.join(asked.faults.types)}" if asked.faults.types else ""
    if asked.faults.trace is not None:
        begin, end = asked.faults.begin_s / DAY_S, asked.faults.end_s / DAY_S
        return (
            f"{servers}; faults of {end - begin:.3g} days of {Path(asked.faults.trace).name}, "
            f"from day {asked.faults.from_day:g}{where}"
        )
    return f"{servers}; {asked.faults.per_server_day:g} faults per server and day{where}"


DAY_S = 86_400.0


def traced_downtime(given: FaultsInput, servers: int, seed: int) -> Downtime:
    """Return the faults of `servers` servers between begin_s and end_s, each server with those of a server of
    the trace.

    A server that is out of order on the first day used is down from begin_s on. A fault that begins before
    end_s lasts as long as in the trace. Raises ScenarioError for more servers than the trace has, or days
    after its last one.
    """
    assert given.trace is not None, "the caller asks for a trace"
    traced = read_downtimes(given.trace)
    if servers > len(traced):
        raise ScenarioError(
            f"cluster.faults.trace: the trace has {len(traced)} servers and the cluster has {servers}; take "
            "fewer servers, or give per_server_day"
        )
    until = given.from_day + (given.end_s - given.begin_s) / DAY_S
    if until > TRACE_DAYS:
        raise ScenarioError(
            f"cluster.faults.from_day: the trace ends on day {TRACE_DAYS:g}, and end_s is its day {until:g}; "
            "begin or end earlier"
        )
    found: list[tuple[int, float, float]] = []
    chosen = np.random.default_rng(seed).permutation(len(traced))[:servers]
    for server, place in enumerate(chosen.tolist()):
        for begin, end in traced[place].tolist():
            if end > given.from_day and begin < until:
                shifted = np.array([max(begin, given.from_day), end]) - given.from_day
                found.append((server, *(given.begin_s + shifted * DAY_S).tolist()))
    rows = np.array(sorted(found, key=lambda row: (row[1], row[0])), float).reshape(-1, 3)
    return Downtime(rows[:, 0].astype(np.int64), rows[:, 1], rows[:, 2])
