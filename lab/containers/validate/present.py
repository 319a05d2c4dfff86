"""Judged cells as a table: twin, testbed, error, spread, limit and verdict of every quantity.

For: `twinbed validate` and the results page. Not for: judging.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lab.containers.validate.both import Cell
from lab.containers.validate.disturbance import MOST
from lab.containers.validate.measures import measures
from lab.containers.validate.rule import (
    LEAST_REPEATS,
    QUANTITIES,
    RULE,
    TARGET,
    Judgement,
    Quantity,
    Verdict,
    judge,
    share,
)
from lab.runs.formats import Column, Record, Result
from lab.runs.store import Run

COMPANY_CORES = 0.2
"""CPU that something else may use beside a run, on average, before the run is said to have had company."""

COLUMNS = (
    Column("cell", "Cell"),
    Column("policy", "Policy"),
    Column("quantity", "Quantity"),
    Column("unit", "Unit"),
    Column("twin", "Twin", digits="decimals"),
    Column("testbed", "Testbed", digits="decimals"),
    Column("error", "Error", digits="decimals"),
    Column("relative_error", "Error", decimals=1, percent=True),
    Column("low", "Least", digits="decimals"),
    Column("high", "Most", digits="decimals"),
    Column("limit", "Limit"),
    Column("verdict", "Verdict"),
)


def result(cells: Sequence[Cell]) -> Result:
    """One line per cell and quantity that could be compared; shares and the rule below."""
    rows = tuple(row(cell, each) for cell in cells for each in cell.judgements if each.verdict.counts)
    several = len({cell.name for cell in cells}) > 1
    return Result(
        COLUMNS if several else COLUMNS[1:],
        rows,
        facts(cells),
        "Error: twin − testbed. Least and most: the testbed's own repeats.",
        (*shares(cells), *disturbed(cells), *company(cells), RULE),
    )


def row(cell: Cell, each: Judgement) -> Record:
    """One comparison as a record of COLUMNS."""
    quantity = each.quantity
    return {
        "cell": cell.name,
        "policy": cell.policy,
        "quantity": quantity.title,
        "unit": "" if quantity.unit == "1" else quantity.unit,
        "twin": each.twin,
        "testbed": each.testbed,
        "error": each.error,
        "relative_error": each.relative_error,
        "low": each.low,
        "high": each.high,
        "limit": quantity.limit,
        "verdict": str(each.verdict),
        "decimals": quantity.decimals,
    }


def shares(cells: Sequence[Cell]) -> Iterator[str]:
    """How much agrees: of all comparisons, and of each quantity's, in words."""
    judged = [each for cell in cells for each in cell.judgements]
    counted = [each for each in judged if each.verdict.counts]
    good = [each for each in counted if each.verdict.agrees]
    inside = sum(each.verdict is Verdict.LIMIT for each in good)
    if not counted:
        yield "Nothing could be compared."
        return
    yield (
        f"{len(good)} of {len(counted)} comparisons agree ({share(counted):.0%}; the aim is {TARGET:.0%}): "
        f"{inside} inside their limit, {len(good) - inside} inside the spread. "
        f"{sum(cell.agrees for cell in cells)} of {len(cells)} cells agree in everything."
    )
    yield (
        "; ".join(f"{quantity.title}: {good} of {total}" for quantity, good, total in by_quantity(cells))
        + "."
    )


def disturbed(cells: Sequence[Cell]) -> Iterator[str]:
    """What was left out because the processor had other work, and what would have been without that."""
    left = sum(len(cell.disturbed) for cell in cells)
    if left:
        first = [each for cell in cells for each in _of_first_runs(cell)]
        counted = [each for each in first if each.verdict.counts]
        good = sum(each.verdict.agrees for each in counted)
        yield (
            f"{left} of {left + sum(len(cell.testbed) for cell in cells)} runs on the testbed were disturbed "
            f"and do not count: they took over {MOST - 1:.0%} more CPU for the same requests than another "
            "repeat, so that something else used the processor. The cell was repeated instead, to twice as "
            f"many runs at most. With every cell's first runs, whatever they took, {good} of {len(counted)} "
            f"comparisons agree ({share(counted):.0%})."
        )


def _of_first_runs(cell: Cell) -> Iterator[Judgement]:
    """The judgements as if no run had been left out, nor made in its place."""
    runs = [run for run in (*cell.testbed, *cell.disturbed) if run.manifest["repeat"] < LEAST_REPEATS]
    ours, theirs = ([measures(run) for run in each] for each in (cell.twin, runs))
    for quantity in QUANTITIES:
        yield judge(quantity, [each[quantity.key] for each in ours], [each[quantity.key] for each in theirs])


def company(cells: Sequence[Cell]) -> Iterator[str]:
    """A warning where something else used so much CPU that the testbed's runs are not the containers' own."""
    found = [_company_cores(run) for cell in cells for run in cell.testbed]
    busy = sum(cores > COMPANY_CORES for cores in found)
    if busy:
        yield (
            f"{busy} of {len(found)} runs on the testbed had company: something else on the machine used "
            f"more than {COMPANY_CORES:g} cores ({max(found):.2f} at most). The twin knows nothing of it; "
            "repeat them on a quiet machine."
        )


def _company_cores(run: Run) -> float:
    """What neither containers nor control loop nor load generator used."""
    about = run.manifest["testbed"]
    workload = run.manifest["workload"]
    client_s = about["client"]["cpu_s"] if "client" in about else 0.0
    own = about["loop"]["own_cores"] + client_s / (workload["periods"] * workload["period_s"])
    return float(about["others_cores"] - own)


def repeats(cells: Sequence[Cell]) -> str:
    """How many runs of the testbed count per cell and seed: `3`, `3 to 5`."""
    counts = [len(cell.testbed) // len({run.seed for run in cell.testbed}) for cell in cells]
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"


def by_quantity(cells: Sequence[Cell]) -> Iterator[tuple[Quantity, int, int]]:
    """(quantity, comparisons that agree, comparisons) of each quantity that could be compared."""
    for quantity in QUANTITIES:
        judged = [each for cell in cells for each in cell.judgements if each.quantity == quantity]
        found = [each.verdict.agrees for each in judged if each.verdict.counts]
        if found:
            yield quantity, sum(found), len(found)


def worst(cells: Sequence[Cell], most: int) -> list[tuple[Cell, Judgement]]:
    """The comparisons that miss their limit by most and are not inside the spread, the worst first."""
    found = [
        (cell, each)
        for cell in cells
        for each in cell.judgements
        if each.verdict.counts and not each.verdict.agrees
    ]
    return sorted(found, key=lambda pair: -pair[1].badness)[:most]


def facts(cells: Sequence[Cell]) -> Record:
    """What was run, and where."""
    first = cells[0].testbed[0].manifest
    machine = first["testbed"]["machine"]
    seeds = sorted({run.seed for cell in cells for run in cell.testbed})
    workload = first["workload"]
    return {
        "scenario": ", ".join(dict.fromkeys(cell.scenario for cell in cells)),
        "testbed": f"{machine['cpus']} CPUs ({machine['cpu_model']}), {machine['kernel']}, telemetry "
        f"{first['testbed']['telemetry']}",
        "calibration": f"{first['calibration']['name']} of {first['calibration']['date']}, "
        f"{first['calibration']['sha256'][:10]}",
        "runs": f"{repeats(cells)} repeats of {workload['periods'] * workload['period_s']:g} s on the "
        f"testbed, seed {', '.join(map(str, seeds))}",
    }
