"""docs/results/fidelity-containers.md: every cell of the matrix, twin beside testbed, and the control loop.

For: `python -m studies fidelity-containers`, which makes the runs that the store lacks and writes the page.
Not for: running or judging a cell (lab.containers.validate), nor the command's table (its present.py).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from lab.containers.validate import present
from lab.containers.validate.both import Cell, validate
from lab.containers.validate.rule import (
    NEAR_OWN,
    QUANTITIES,
    RULE,
    TARGET,
    Judgement,
    Quantity,
    Verdict,
    reached,
    share,
)
from lab.explorer import shipped_validation
from lab.runs.formats import ABSENT, Column, Record, Result, markdown
from lab.runs.store import RunStore
from studies import harness
from studies.fidelity_containers import loop_figures, matrix
from studies.fidelity_containers.loop_figures import LoopFigures
from studies.harness import Asked, table
from studies.judge import aim

CODE = ("control/allocator", "testbed/containers", "twin/containers", "lab/containers", "scenarios/apps")
"""Packages on which a run depends in addition to the scenario and the calibration, which are in its id."""

_WORST = 15
_MARKS = {Verdict.LIMIT: "✓", Verdict.SPREAD: "≈", Verdict.OUTSIDE: "✗", Verdict.ONE_SIDED: "✗!"}
_BURST, _SHOP = "burst", "hipster-shop"
_POLICIES = ("static", "autopilot", "escra")


def make(asked: Asked) -> int:
    """Make the runs that the store lacks, measure the control loop, and write the page."""
    questions = matrix.scenarios(asked.only, asked.duration or matrix.DURATION_S, asked.few)
    repeats = asked.repeats or matrix.REPEATS
    minutes = matrix.estimate_s(questions, repeats) / 60
    harness.say(f"about {minutes:.0f} minutes on the testbed if nothing is stored yet")
    store = RunStore(asked.store or harness.store_of_code("fidelity-containers", CODE))
    check, done = harness.clock(asked.minutes), 0

    def progress(label: str, fraction: float) -> None:
        nonlocal done
        check()
        if fraction >= 1.0:
            done += 1
            harness.say(f"{done}: {label}")

    cells: list[Cell] = []
    for question in questions:
        began = time.monotonic()
        cells += validate(question, store, repeats=repeats, progress=progress, fresh=False)
        harness.say(f"{question.name}: {time.monotonic() - began:.0f} s")
    loop = None if asked.only else loop_figures.measure()
    took_s = sum(float(run.manifest["wall_s"]) for cell in cells for run in (*cell.testbed, *cell.disturbed))
    text = document(cells, loop, took_s, asked.only, asked.few)
    publish(text, asked.out)
    return 0


def publish(text: str, folder: Path) -> None:
    """Write the page into a folder. The explorer's comparisons follow the page that ships, so write both."""
    harness.publish("fidelity-containers", text, folder)
    if folder.resolve() == harness.RESULTS.resolve():
        harness.write(shipped_validation.FILE, shipped_validation.of_page(text).to_csv(index=False))


def document(
    cells: Sequence[Cell],
    loop: LoopFigures | None,
    took_s: float,
    only: Sequence[str] = (),
    few: int | None = None,
) -> str:
    """Return the page's text.

    loop: None where it was not measured; took_s: time that the runs took, s; only: the parts of the matrix
    that were made, empty for all; few: how many loads of each application were drawn, None for all
    """
    parts = [*_summary(cells), *_worst(cells), *_bursts(cells), *_loop(loop), *_all(cells)]
    conditions = (*_part(only, few), *_conditions(cells, took_s))
    return harness.page(
        "fidelity-containers",
        "Containers: the twin's error against the real kernel",
        _answer(cells),
        parts,
        conditions,
    )


def _answer(cells: Sequence[Cell]) -> Iterator[str]:
    rows = [
        (good / total, quantity.title, present.own_share(cells, quantity.key))
        for quantity, good, total in present.by_quantity(cells)
    ]
    good = [title for value, title, own in rows if reached(value, own)]
    yield next(iter(present.shares(cells)))
    if rows:
        worst, title, own = min(rows)
        known = f" ({', '.join(good)})" if good else ""
        yield (
            f"The aim is reached for {len(good)} of {len(rows)} quantities{known}; the worst is {title} with "
            f"{worst:.0%}, where repeats on the machine agree with each other in {_percent(own)}."
        )


def _part(only: Sequence[str], few: int | None) -> Iterator[str]:
    """Yield which parts of the matrix and which loads the page has, if not all."""
    if only:
        lacking = ", ".join(part for part in matrix.PARTS if part not in only)
        yield (
            f"**This is a part of the matrix: {', '.join(only)}. Not made: {lacking}, and the loop's "
            "figures.**"
        )
    if few is not None:
        yield f"**The page has {few} of the 9 loads of each application, drawn with seed {matrix.SEED}.**"


def _summary(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## Summary"
    rows = []
    for quantity, good, total in present.by_quantity(cells):
        own = present.own_share(cells, quantity.key)
        counts = (quantity.title, quantity.limit, f"{good} of {total}", f"{good / total:.0%}", _percent(own))
        rows.append((*counts, aim(reached(good / total, own))))
    yield table(("quantity", "limit", "agree", "share", "machine's own", "aim"), rows, left=2)
    yield (
        "Machine's own: the share in which one repeat on the testbed agrees with the others, by the same "
        f"rule. Aim: at least {TARGET:.0%}, or within {100 * NEAR_OWN:.0f} points of the machine's own where "
        "that is less."
    )
    yield (
        "A point is one load and policy. Green: inside the limit. Blue: inside what the testbed's own "
        "repeats spread over, the grey line. Orange: outside. Pale band: a relative limit."
    )
    yield "### By policy: the twin's share, and the machine's own"
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    yield table(
        ("quantity", *policies),
        (
            (quantity.title, *(_beside(cells, policy, quantity) for policy in policies))
            for quantity, _, _ in present.by_quantity(cells)
        ),
    )
    by_policy: dict[str, list[Judgement]] = {}
    for cell in cells:
        by_policy.setdefault(cell.policy, []).extend(cell.judgements)
    yield f"Overall: {', '.join(f'{policy} {share(items):.0%}' for policy, items in by_policy.items())}."
    yield from present.own(cells)


def _beside(cells: Sequence[Cell], policy: str, quantity: Quantity) -> str:
    """Return how often a policy's cells agree in a quantity, and how often the machine agrees with itself."""
    ours = [cell for cell in cells if cell.policy == policy]
    twins = [item for cell in ours for item in cell.judgements if item.quantity == quantity]
    return f"{_percent(share(twins))} / {_percent(present.own_share(ours, quantity.key))}"


def _percent(value: float) -> str:
    return harness.dash(value, ".0%")


def _worst(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## The worst cells"
    worst = present.worst(cells, _WORST)
    if not worst:
        compared = any(present.by_quantity(cells))
        yield "Every comparison agrees." if compared else "Nothing was compared: no quantity has a value."
        return
    columns = tuple(column for column in present.COLUMNS if column.key != "limit")
    rows: list[Record] = [{**present.row(cell, item), "badness": item.badness} for cell, item in worst]
    yield markdown(Result((*columns, Column("badness", "Times", decimals=1)), tuple(rows))).strip()
    yield "Times: the error divided by what is allowed (∞: only one side has a value)."


def _bursts(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield Escra beside the other policies on the real kernel, on the bursts of HipsterShop."""
    bursts = [cell for cell in cells if cell.scenario.endswith(_SHOP) and _BURST in cell.variant]
    if not bursts:
        return
    rows: list[Sequence[str]] = []
    verdicts: list[str] = []
    for variant in dict.fromkeys(cell.variant for cell in bursts):
        own = {cell.policy.split(":")[0]: cell for cell in bursts if cell.variant == variant}
        for cell in (own[name] for name in _POLICIES if name in own):
            slack, rate, latency = (
                _median(cell, key) for key in ("cpu_slack_p50_cores", "throughput_rps", "latency_p99_s")
            )
            kills = sum(run.metrics["oom_kills"] for run in cell.testbed)
            figures = (f"{slack:.3f}", f"{rate:.1f}", f"{latency:.3f}", f"{kills:.0f}")
            rows.append((_load(variant), cell.policy, *figures))
        verdicts += _against(variant, own)
    yield "## Escra against static limits and Autopilot on the real kernel: HipsterShop, bursts"
    heads = ("CPU slack p50 (cores)", "throughput (1/s)", "latency p99 (s)", "OOM kills")
    yield table(("load", "policy", *heads), rows, left=2)
    yield "\n".join(verdicts)
    yield "Figures are medians over the repeats; kills are of all repeats together."


def _against(variant: str, own: dict[str, Cell]) -> Iterator[str]:
    if "escra" not in own:
        return
    slack, rate = (_median(own["escra"], key) for key in ("cpu_slack_p50_cores", "throughput_rps"))
    for cell in (own[name] for name in ("static", "autopilot") if name in own):
        lower = 1 - slack / _median(cell, "cpu_slack_p50_cores")
        more = rate / _median(cell, "throughput_rps") - 1
        yield (
            f"- {_load(variant)}: against {cell.policy} CPU slack p50 is lower by {lower:.0%} and throughput "
            f"changes by {more:+.1%} (aim: at least 60 % lower, at most 3 % less): "
            f"{aim(lower >= 0.60 and more >= -0.03)}."
        )


def _loop(loop: LoopFigures | None) -> Iterator[str]:
    if loop is None:
        return
    traps = loop.traps
    yield "## The control loop on this kernel"
    yield table(
        ("figure", "measured", "aim"),
        (
            ("ticks on time (± 10 ms), 100 containers at 100 ms", f"{loop.on_time_share:.2%}", "≥ 99.5 %"),
            ("lateness p99", f"{loop.late_p99_s * 1e3:.2f} ms", ""),
            ("CPU of the loop", f"{loop.own_cores:.1%} of a core", "≤ 15 %"),
            (f"quota write p99 ({loop.writes} writes)", f"{loop.write_p99_s * 1e3:.3f} ms", "≤ 2 ms"),
            (f"OOM trap to raised limit p99 ({traps} traps)", f"{loop.grant_p99_s * 1e3:.3f} ms", "≤ 10 ms"),
            (f"tasks killed in {traps} traps in a row", loop.kills, 0),
        ),
    )
    yield "`python -m studies control-loop` measures this table alone."


def _all(cells: Sequence[Cell]) -> Iterator[str]:
    yield "## All cells"
    yield (
        "Twin / testbed (the testbed's least to most). ✓ inside the limit, ≈ inside the testbed's own "
        f"spread, ✗ outside, ! only one side has a value, {ABSENT} neither."
    )
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        own = [cell for cell in cells if cell.scenario == scenario]
        shown = [
            index
            for index in range(len(QUANTITIES))
            if any(cell.judgements[index].verdict.counts for cell in own)
        ]
        units = ["" if QUANTITIES[index].unit == "1" else f" ({QUANTITIES[index].unit})" for index in shown]
        heads = [f"{QUANTITIES[index].title}{unit}" for index, unit in zip(shown, units, strict=True)]
        rows = [
            (_load(cell.variant), cell.policy, *(_text(cell.judgements[index]) for index in shown))
            for cell in own
        ]
        yield f"### {scenario}"
        yield table(("load", "policy", *heads), rows, left=2 + len(heads))


def _conditions(cells: Sequence[Cell], took_s: float) -> Iterator[str]:
    first = cells[0].testbed[0].manifest
    machine, calibration = first["testbed"]["machine"], first["calibration"]
    runs = [run for cell in cells for run in cell.testbed]
    made = sorted(str(run.manifest["created_at"])[:10] for run in runs)
    others = [run.manifest["testbed"]["others_cores"] for run in runs]
    stolen = max(run.manifest["testbed"]["stolen_cores"] for run in runs)
    yield "\n".join(
        (
            f"- date: {datetime.now(UTC).date().isoformat()}; runs of {made[0]} to {made[-1]}",
            f"- kernel: {machine['kernel']}, cgroup v{machine['cgroup_version']}",
            f"- CPU: {machine['cpus']} × {machine['cpu_model']}",
            "- company: everything else on the machine, control loop and load generator included, used "
            f"{sum(others) / len(others):.2f} cores on average over a run and {max(others):.2f} at most; the "
            f"hypervisor took {stolen:.2f} cores at most",
            f"- telemetry: {first['testbed']['telemetry']}",
            f"- calibration: `{calibration['name']}` of {calibration['date']}, SHA-256 "
            f"`{calibration['sha256'][:16]}`; it was made on other loads than these",
            f"- runs: {len(runs) + sum(len(cell.disturbed) for cell in cells)} on the testbed, "
            f"{sum(len(cell.twin) for cell in cells)} on the twin; made in {took_s / 60:.0f} minutes",
            f"- repeats: {present.repeats(cells)}, seed "
            f"{', '.join(map(str, sorted({run.seed for run in runs})))}: the same arrivals and demand on "
            "both sides, in every repeat",
        )
    )
    yield from present.disturbed(cells)
    yield from present.first_draw(cells)
    yield from present.company(cells)
    yield from present.fit(cells)
    yield f"**When the twin agrees.** {RULE} The limits were fixed before the first result."
    yield (
        "`twinbed validate scenarios/validation/teastore.yaml` makes one part of the page. Runs are kept in "
        "`build/studies`; making the page again makes only the missing ones."
    )


def _text(item: Judgement) -> str:
    if not item.verdict.counts:
        return ABSENT
    values = (item.twin, item.testbed, item.low, item.high)
    twin, testbed, low, high = (f"{value:.{item.quantity.decimals}f}" for value in values)
    return f"{twin} / {testbed} ({low}–{high}) {_MARKS[item.verdict]}"


def _load(variant: str) -> str:
    """Return the arrivals of a variant in a few words; variants are KEY=VALUE texts."""
    return variant.partition("=")[2].strip("{}").replace('"', "") or ABSENT


def _median(cell: Cell, key: str) -> float:
    """Return the median of a metric over the testbed's runs."""
    return statistics.median_high(run.metrics[key] for run in cell.testbed)
