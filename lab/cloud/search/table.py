"""A closed-loop search as a table: one row for each trial. Not for: the search (loop.py)."""

from __future__ import annotations

from lab.cloud.search import Backend
from lab.cloud.search.backends import said_of
from lab.cloud.search.loop import EVERY_FAILED, Searched, Trial
from lab.runs.formats import Column, Record, Result
from twinbed.text import counted

_COLUMNS = (
    Column("trial", "trial"),
    Column("configuration", "configuration"),
    Column("step_ms", "step", "ms", 2),
    Column("job_h", "job's time", "h", 2),
    Column("job_usd", "job's cost", "$", 2),
    Column("held_s", "held", "s", 1),
    Column("spent_usd", "trial's cost", "$", 4),
    Column("price_usd_h", "price", "$/h", 3),
    Column("why", "why"),
    Column("problem", "problem"),
)


def record(number: int, trial: Trial) -> Record:
    """Return the row of a trial. number: its place, from 1."""
    return {
        "trial": number,
        "configuration": str(trial.configuration),
        "step_ms": 1000 * trial.step_s,
        "job_h": trial.job_s / 3600,
        "job_usd": trial.job_usd,
        "held_s": trial.held_s,
        "spent_usd": trial.spent_usd,
        "price_usd_h": trial.price_usd_h,
        "why": trial.why,
        "problem": trial.problem,
    }


def result(searched: Searched, backend: Backend) -> Result:
    """Return the table of a search. Its facts are the cluster to take and the cost of the search."""
    rows = tuple(record(number, trial) for number, trial in enumerate(searched.trials, start=1))
    count = len(searched.trials)
    problems = any(trial.problem for trial in searched.trials)
    were = "was" if searched.known == 1 else "were"
    known = f" after {counted(searched.known, 'trial')} that {were} known" if searched.known else ""
    modelled = backend is Backend.TWIN
    measured = ("tried" if modelled else "measured") if searched.tried else "not measured"
    ended = f"The search ended: {searched.why}."
    taken = f"Take: {searched.best} at {searched.price_usd_h:.3f} $/h, {measured}. {ended}"
    none = searched.problem == EVERY_FAILED
    mixed = ["Known trials were real runs; the rehearsal compares their times with modelled ones."]
    return Result(
        _COLUMNS if problems else _COLUMNS[:-1],
        rows,
        facts={
            **({"bounds": searched.problem} if searched.problem else {}),
            "take": "none" if none else str(searched.best),
            "measured": searched.tried,
            "trials": count,
            "spent ($)": searched.spent_usd,
            "stopped": searched.why,
        },
        legend="time and cost are the whole job's; held and the trial's cost are the trial's own",
        notes=(
            f"Take none: every trial failed. Correct the job, or allow other clusters. {ended}"
            if none
            else taken,
            f"{counted(count, 'trial')}{known} cost {searched.spent_usd:.4f} $ by the price list.",
            said_of(backend),
            *(mixed if modelled and searched.known else ()),
            *searched.ready.notes[1:],
        ),
    )
