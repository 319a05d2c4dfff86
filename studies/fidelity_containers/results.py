"""docs/results/fidelity-containers.md: every cell of the matrix, twin beside testbed, and the control loop.

For: the page's text, from judged cells and the loop's figures. Not for: running them (__main__.py), judging
(rule.py) or the command's table (present.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from lab.containers.validate import present
from lab.containers.validate.both import Cell
from lab.containers.validate.rule import QUANTITIES, RULE, TARGET, Judgement, Quantity, Verdict, share
from lab.runs.formats import ABSENT, Column, Record, Result, markdown
from lab.runs.store import Run
from studies.fidelity_containers.loop_figures import COMMAND, LoopFigures
from studies.fidelity_containers.matrix import PARTS

_WORST = 15
_MARKS = {Verdict.LIMIT: "✓", Verdict.SPREAD: "≈", Verdict.OUTSIDE: "✗", Verdict.ONE_SIDED: "✗!"}
_BURST = "burst"
_SHOP = "hipster-shop"
_POLICIES = ("static", "autopilot", "escra")
MAKE = "make results-fidelity-containers"


def document(cells: Sequence[Cell], loop: LoopFigures | None, took_s: float, only: Sequence[str] = ()) -> str:
    """The page's text. loop: None where it was not measured; took_s: what making the runs took; only: the
    parts of the matrix that were made, all if empty."""
    parts = [*_head(cells, took_s, only), *_summary(cells), *_worst(cells), *_policies(cells), *_loop(loop)]
    parts += [*_all(cells), *_runs(cells)]
    return "\n\n".join(parts) + "\n"


def _head(cells: Sequence[Cell], took_s: float, only: Sequence[str]) -> Iterator[str]:
    first = cells[0].testbed[0].manifest
    machine, calibration = first["testbed"]["machine"], first["calibration"]
    made = sorted(str(run.manifest["created_at"])[:10] for cell in cells for run in cell.testbed)
    others = [run.manifest["testbed"]["others_cores"] for cell in cells for run in cell.testbed]
    stolen = [run.manifest["testbed"]["stolen_cores"] for cell in cells for run in cell.testbed]
    yield f"<!-- Made by `{MAKE}`; edit lab/validation, not this file. -->"
    yield "# Containers: the twin's error against the real kernel"
    yield "\n".join(
        [
            f"- date: {datetime.now(UTC).date().isoformat()}; runs of {made[0]} to {made[-1]}",
            f"- kernel: {machine['kernel']}, cgroup v{machine['cgroup_version']}",
            f"- CPU: {machine['cpus']} × {machine['cpu_model']}",
            "- company: all else on the machine, control loop and load generator included, used "
            f"{sum(others) / len(others):.2f} cores on average over a run and {max(others):.2f} at most; the "
            f"hypervisor took {max(stolen):.2f} cores at most",
            f"- telemetry: {first['testbed']['telemetry']}",
            f"- calibration: `{calibration['name']}` of {calibration['date']}, SHA-256 "
            f"`{calibration['sha256'][:16]}`",
            f"- runs: {sum(len(cell.testbed) + len(cell.disturbed) for cell in cells)} on the testbed, "
            f"{sum(len(cell.twin) for cell in cells)} on the twin; made in {took_s / 60:.0f} minutes",
        ]
    )
    if only:
        lacking = [part for part in PARTS if part not in only]
        yield (
            f"**A part of the matrix: {', '.join(only)}. Not made: {', '.join(lacking)}, "
            "and the loop's figures.**"
        )
    yield (
        f"`{MAKE}` makes this page, `twinbed validate scenarios/validation/teastore.yaml` a part of it. "
        "Calibrated is on loads that are not among these."
    )
    yield from present.disturbed(cells)
    yield from present.company(cells)
    yield f"**When the twin agrees.** {RULE} The rule was fixed before the first result."


def _summary(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Summary"
    lines = ["| quantity | limit | agree | share | aim |", "|---|---|---:|---:|---|"]
    for quantity, good, total in present.by_quantity(cells):
        reached = "reached" if good >= TARGET * total else "missed"
        lines.append(
            f"| {quantity.title} | {quantity.limit} | {good} of {total} | {good / total:.0%} | {reached} |"
        )
    yield "\n".join(lines)
    yield next(iter(present.shares(cells)))
    by_policy: dict[str, list[Judgement]] = {}
    for cell in cells:
        by_policy.setdefault(cell.policy, []).extend(cell.judgements)
    yield f"By policy: {', '.join(f'{policy} {share(found):.0%}' for policy, found in by_policy.items())}."


def _worst(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## The worst cells"
    found = present.worst(cells, _WORST)
    if not found:
        yield "Every comparison agrees."
        return
    columns = tuple(column for column in present.COLUMNS if column.key != "limit")
    rows: list[Record] = [{**present.row(cell, each), "badness": each.badness} for cell, each in found]
    yield "By how many times the error is larger than what is allowed (∞: only one side has a value)."
    yield markdown(Result((*columns, Column("badness", "Times", decimals=1)), tuple(rows))).strip()


def _policies(cells: Sequence[Cell]) -> Iterator[str]:
    """Escra against the others on the real kernel, on the bursts of HipsterShop."""
    bursts = [cell for cell in cells if cell.scenario.endswith(_SHOP) and _BURST in cell.variant]
    if not bursts:
        return
    yield "## Escra against static limits and Autopilot on the real kernel: HipsterShop, bursts"
    lines = [
        "| load | policy | CPU slack p50 (cores) | throughput (1/s) | latency p99 (s) | OOM kills |",
        "|---|---|---:|---:|---:|---:|",
    ]
    verdicts: list[str] = []
    for variant in dict.fromkeys(cell.variant for cell in bursts):
        here = {cell.policy.split(":")[0]: cell for cell in bursts if cell.variant == variant}
        for name in _POLICIES:
            if name in here:
                values = [
                    _middle(here[name], key)
                    for key in ("cpu_slack_p50_cores", "throughput_rps", "latency_p99_s")
                ]
                kills = sum(run.metrics["oom_kills"] for run in here[name].testbed)
                lines.append(
                    f"| {_load(variant)} | {here[name].policy} | {values[0]:.3f} | {values[1]:.1f} | "
                    f"{values[2]:.3f} | {kills:.0f} |"
                )
        verdicts += _against(variant, here)
    yield "\n".join(lines)
    yield "\n".join(verdicts)
    yield "Medians over the repeats; kills are of all repeats together."


def _against(variant: str, here: dict[str, Cell]) -> Iterator[str]:
    if "escra" not in here:
        return
    slack, rate = (_middle(here["escra"], key) for key in ("cpu_slack_p50_cores", "throughput_rps"))
    for name in ("static", "autopilot"):
        if name in here:
            lower = 1 - slack / _middle(here[name], "cpu_slack_p50_cores")
            more = rate / _middle(here[name], "throughput_rps") - 1
            kept = "kept" if lower >= 0.60 and more >= -0.03 else "missed"
            yield (
                f"- {_load(variant)}: against {here[name].policy} CPU slack p50 is lower by {lower:.0%} and "
                f"throughput changes by {more:+.1%} (aim: at least 60 % lower, at most 3 % less): {kept}."
            )


def _loop(loop: LoopFigures | None) -> Iterator[str]:
    if loop is None:
        return
    yield "## The control loop on this kernel"
    lines = [
        "| figure | found | aim |",
        "|---|---:|---|",
        f"| ticks on time (± 10 ms), 100 containers at 100 ms | {loop.on_time_share:.2%} | ≥ 99.5 % |",
        f"| lateness p99 | {loop.late_p99_s * 1e3:.2f} ms | |",
        f"| CPU of the loop | {loop.own_cores:.1%} of a core | ≤ 15 % |",
        f"| quota write p99 ({loop.writes} writes) | {loop.write_p99_s * 1e3:.3f} ms | ≤ 2 ms |",
        f"| OOM trap to raised limit p99 ({loop.traps} traps) | {loop.grant_p99_s * 1e3:.3f} ms | ≤ 10 ms |",
        f"| tasks killed in {loop.traps} traps in a row | {loop.kills} | 0 |",
    ]
    yield "\n".join(lines)
    yield f"`{COMMAND}`"


def _all(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## All cells"
    yield (
        "Twin / testbed (the testbed's least to most). ✓ inside the limit, ≈ inside its own spread, "
        f"✗ outside, ! only one side has it, {ABSENT} neither."
    )
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        here = [cell for cell in cells if cell.scenario == scenario]
        shown = [
            quantity
            for index, quantity in enumerate(QUANTITIES)
            if any(cell.judgements[index].verdict.counts for cell in here)
        ]
        yield f"### {scenario}"
        heads = [f"{each.title}{'' if each.unit == '1' else f' ({each.unit})'}" for each in shown]
        lines = [f"| load | policy | {' | '.join(heads)} |", f"|---|---|{'---|' * len(shown)}"]
        for cell in here:
            texts = [_text(_of(cell, each)) for each in shown]
            lines.append(f"| {_load(cell.variant)} | {cell.policy} | {' | '.join(texts)} |")
        yield "\n".join(lines)


def _runs(cells: Sequence[Cell]) -> Iterator[str]:
    seeds = sorted({run.seed for cell in cells for run in cell.testbed})
    yield "## Runs"
    yield (
        f"{present.repeats(cells)} repeats, seed {', '.join(map(str, seeds))}: the same arrivals and demand "
        "on both sides, in every repeat. Runs are kept in `build/fidelity`; making the page again makes "
        "those that lack."
    )


def _of(cell: Cell, quantity: Quantity) -> Judgement:
    return cell.judgements[QUANTITIES.index(quantity)]


def _text(each: Judgement) -> str:
    if not each.verdict.counts:
        return ABSENT
    twin, testbed, low, high = (
        f"{value:.{each.quantity.decimals}f}" for value in (each.twin, each.testbed, each.low, each.high)
    )
    return f"{twin} / {testbed} ({low}–{high}) {_MARKS[each.verdict]}"


def _load(variant: str) -> str:
    """The arrivals of a variant in a few words; variants are KEY=VALUE texts."""
    return variant.partition("=")[2].strip("{}").replace('"', "") or ABSENT


def _middle(cell: Cell, key: str) -> float:
    """Median of a metric over the testbed's runs."""
    values = sorted(_metric(run, key) for run in cell.testbed)
    return values[len(values) // 2]


def _metric(run: Run, key: str) -> float:
    return run.metrics[key]
