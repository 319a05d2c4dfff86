"""Shows judged cells as a table: twin, testbed, error, spread, limit and verdict of every quantity.

For: `twinbed validate` and the results page. Not for: judging (rule.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from lab.containers.validate.both import Cell, judged_values
from lab.containers.validate.measures import MOST_CPU, measures
from lab.containers.validate.rule import (
    LEAST_REPEATS,
    QUANTITIES,
    RULE,
    TARGET,
    Judgement,
    Quantity,
    Verdict,
    share,
)
from lab.runs.formats import Column, Record, Result
from lab.runs.store import Run

COMPANY_CORES = 0.2
"""Mean CPU that other programs may use beside a run before a warning is given, cores."""

COLUMNS = (
    Column("cell", "Cell"), Column("policy", "Policy"), Column("quantity", "Quantity"),
    Column("unit", "Unit"), Column("twin", "Twin", digits="decimals"),
    Column("testbed", "Testbed", digits="decimals"), Column("error", "Error", digits="decimals"),
    Column("relative_error", "Error", decimals=1, percent=True), Column("low", "Least", digits="decimals"),
    Column("high", "Most", digits="decimals"), Column("limit", "Limit"), Column("verdict", "Verdict"),
)  # fmt: skip


def result(cells: Sequence[Cell]) -> Result:
    """Return one line per cell and quantity that could be compared, with the shares and the rule below."""
    rows = tuple(
        row(cell, judgement) for cell in cells for judgement in cell.judgements if judgement.verdict.counts
    )
    several = len({cell.name for cell in cells}) > 1
    return Result(
        COLUMNS if several else COLUMNS[1:],
        rows,
        facts(cells),
        "Error: twin − testbed. Least and most: the testbed's own repeats.",
        (*shares(cells), *own(cells), *disturbed(cells), *company(cells), *fit(cells), RULE),
    )


def row(cell: Cell, judgement: Judgement) -> Record:
    """Return one comparison as a record of COLUMNS."""
    quantity = judgement.quantity
    return {
        "cell": cell.name, "policy": cell.policy, "quantity": quantity.title,
        "unit": "" if quantity.unit == "1" else quantity.unit, "twin": judgement.twin,
        "testbed": judgement.testbed, "error": judgement.error, "relative_error": judgement.relative_error,
        "low": judgement.low, "high": judgement.high, "limit": quantity.limit,
        "verdict": str(judgement.verdict), "decimals": quantity.decimals,
    }  # fmt: skip


def shares(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield sentences on how many of all comparisons agree, and how many of each quantity."""
    verdicts = [judgement.verdict for cell in cells for judgement in cell.judgements]
    counted = [verdict for verdict in verdicts if verdict.counts]
    good = [verdict for verdict in counted if verdict.agrees]
    inside = good.count(Verdict.LIMIT)
    if not counted:
        yield "Nothing could be compared."
        return
    yield (
        f"{len(good)} of {len(counted)} comparisons agree ({len(good) / len(counted):.0%}; the aim is "
        f"{TARGET:.0%}): {inside} inside their limit, {len(good) - inside} inside the spread. "
        f"{sum(cell.agrees for cell in cells)} of {len(cells)} cells agree in everything."
    )
    yield (
        "; ".join(f"{quantity.title}: {good} of {total}" for quantity, good, total in by_quantity(cells))
        + "."
    )


def own_share(cells: Sequence[Cell], key: str | None = None) -> float:
    """Return the share of the testbed's repeats that agree with the others of their cell; NaN if there is
    only one repeat. key: key of one quantity; None for all quantities."""
    counts = [
        count
        for cell in cells
        for quantity, count in zip(QUANTITIES, cell.own, strict=True)
        if key in (None, quantity.key)
    ]
    total = sum(compared for _, compared in counts)
    return sum(agree for agree, _ in counts) / total if total else math.nan


def own(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence on the machine's agreement with itself, over all quantities and for each."""
    whole = own_share(cells)
    if math.isnan(whole):
        return
    parts = ((quantity.title, own_share(cells, quantity.key)) for quantity, _, _ in by_quantity(cells))
    quantities = "; ".join(f"{title} {part:.0%}" for title, part in parts if not math.isnan(part))
    yield f"On this machine, one repeat agrees with the others in {whole:.0%} ({quantities})."


def disturbed(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence on runs that were left out because the processor had other work, and on their
    effect."""
    left = sum(len(cell.disturbed) for cell in cells)
    if left:
        counted = [
            judgement for cell in cells for judgement in _of_first_runs(cell) if judgement.verdict.counts
        ]
        good = sum(judgement.verdict.agrees for judgement in counted)
        yield (
            f"{left} of {left + sum(len(cell.testbed) for cell in cells)} runs on the testbed were disturbed "
            f"and do not count: they took over {MOST_CPU - 1:.0%} more CPU for the same requests than "
            "another repeat, so that something else used the processor. The cell was repeated instead, to "
            f"twice as many runs at most. With every cell's first runs, whatever they took, {good} of "
            f"{len(counted)} comparisons agree ({share(counted):.0%})."
        )


def _of_first_runs(cell: Cell) -> tuple[Judgement, ...]:
    """Return the judgements of the first runs, including disturbed runs and without their replacements."""
    runs = [run for run in (*cell.testbed, *cell.disturbed) if run.manifest["repeat"] < LEAST_REPEATS]
    return judged_values(*([measures(run) for run in side] for side in (cell.twin, runs)))


def first_draw(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence on how many comparisons agree if the twin is drawn once."""
    alone = [
        judgement
        for cell in cells
        for judgement in judged_values([measures(cell.twin[0])], [measures(run) for run in cell.testbed])
        if judgement.verdict.counts
    ]
    if any(len(cell.twin) > 1 for cell in cells) and alone:
        good = sum(judgement.verdict.agrees for judgement in alone)
        yield (
            f"With the first draw of the twin alone, {good} of {len(alone)} comparisons agree "
            f"({share(alone):.0%})."
        )


def company(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a warning if other programs used so much CPU that the runs were affected."""
    used_cores = [_company_cores(run) for cell in cells for run in cell.testbed]
    busy = sum(cores > COMPANY_CORES for cores in used_cores)
    if busy:
        yield (
            f"{busy} of {len(used_cores)} runs on the testbed had company: something else on the machine "
            f"used more than {COMPANY_CORES:g} cores ({max(used_cores):.2f} at most). The twin knows nothing "
            "of it; repeat them on a quiet machine."
        )


def fit(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what the runs' probes say about the machine and its calibration, with the number of runs."""
    said = Counter(run.manifest["testbed"]["probe"]["says"] for cell in cells for run in cell.testbed)
    for sentence, count in said.most_common():
        yield sentence if len(said) == 1 else f"{sentence} ({count} of {said.total()} runs)"


def _company_cores(run: Run) -> float:
    """Return the CPU that neither containers nor control loop nor load generator used, cores."""
    about = run.manifest["testbed"]
    workload = run.manifest["workload"]
    client_s = about["client"]["cpu_s"] if "client" in about else 0.0
    own = about["loop"]["own_cores"] + client_s / (workload["periods"] * workload["period_s"])
    return float(about["others_cores"] - own)


def repeats(cells: Sequence[Cell]) -> str:
    """Return how many runs of the testbed count per cell and seed: `3`, `3 to 5`."""
    counts = [len(cell.testbed) // len({run.seed for run in cell.testbed}) for cell in cells]
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"


def by_quantity(cells: Sequence[Cell]) -> Iterator[tuple[Quantity, int, int]]:
    """Yield (quantity, comparisons that agree, comparisons) for each quantity that could be compared."""
    for quantity in QUANTITIES:
        agree = [
            judgement.verdict.agrees
            for cell in cells
            for judgement in cell.judgements
            if judgement.quantity == quantity and judgement.verdict.counts
        ]
        if agree:
            yield quantity, sum(agree), len(agree)


def worst(cells: Sequence[Cell], most: int) -> list[tuple[Cell, Judgement]]:
    """Return the comparisons that miss their limit by most and are outside the spread, the worst first."""
    missed = [
        (cell, judgement)
        for cell in cells
        for judgement in cell.judgements
        if judgement.verdict.counts and not judgement.verdict.agrees
    ]
    return sorted(missed, key=lambda pair: -pair[1].badness)[:most]


def facts(cells: Sequence[Cell]) -> Record:
    """Return the facts about the runs and their machine."""
    first = cells[0].testbed[0].manifest
    machine = first["testbed"]["machine"]
    seeds = sorted({run.seed for cell in cells for run in cell.testbed})
    workload, count = first["workload"], repeats(cells)
    return {
        "scenario": ", ".join(dict.fromkeys(cell.scenario for cell in cells)),
        "testbed": f"{machine['cpus']} CPUs ({machine['cpu_model']}), {machine['kernel']}, telemetry "
        f"{first['testbed']['telemetry']}",
        "calibration": f"{first['calibration']['name']} of {first['calibration']['date']}, "
        f"{first['calibration']['sha256'][:10]}",
        "runs": f"{count} {'repeat' if count == '1' else 'repeats'} of "
        f"{workload['periods'] * workload['period_s']:g} s on the testbed, seed {', '.join(map(str, seeds))}",
    }
