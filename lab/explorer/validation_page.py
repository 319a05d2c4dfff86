"""Draws the page "Validation": twin and testbed over each other, and the twin's error in each quantity.

For: this page and its tables of verdicts. Not for: the rule (lab.containers.validate.rule), the search for
runs that belong together (lab.containers.validate.both), or making them, which needs root (`twinbed
validate`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import streamlit as st

from lab.charts import validation as charts
from lab.charts.palette import title
from lab.containers.validate import present
from lab.containers.validate.both import Cell
from lab.containers.validate.rule import QUANTITIES, RULE, Judgement, Verdict
from lab.explorer import cached, html, running, sections, session, shipped_validation
from lab.explorer.html import parts
from lab.explorer.sections import section
from lab.runs.formats import ABSENT
from lab.runs.store import Run, RunStore
from twinbed.text import counted

_PANELS = 3
"""Panels beside each other."""
_COMMAND = "sudo .venv/bin/twinbed validate scenarios/validation/step.yaml"


def page() -> None:
    """Draw the page."""
    running.take_finished()
    sections.title("Validation", "How far is the twin from the real machine, quantity by quantity?")
    running.show()
    store = RunStore()
    cells = cached.cells(list(store.runs()))
    if not cells:
        _shipped()
        _empty(store)
        return
    chosen = _choose(cells)
    same = [cell for cell in cells if cell.scenario == chosen.scenario]
    _errors(chosen)
    _over_time(chosen)
    _latency(chosen)
    _all(same)
    _provenance(chosen)
    _shipped()


def _shipped() -> None:
    """Show the comparisons that ship with this version, one panel per quantity."""
    frame = shipped_validation.comparisons()
    agree = frame["verdict"].isin([str(Verdict.LIMIT), str(Verdict.SPREAD)])
    section("What ships with this version")
    st.markdown(
        f"**{agree.sum():d} of {len(frame)} comparisons agree ({agree.mean():.0%}).** Each point is a "
        "quantity of the twin over the same quantity on a real kernel, for one load and policy."
    )
    quantities = [quantity for quantity in QUANTITIES if (frame["quantity"] == quantity.title).any()]
    st.caption(
        "Green: inside the limit. Blue: inside the spread of the testbed's own repeats, which is the "
        "noise floor and the grey line through each point. Orange: outside. Pale band: a relative limit."
    )
    # Panels are drawn row by row, so that a phone keeps their order.
    columns = [column for _ in range(0, len(quantities), _PANELS) for column in st.columns(_PANELS)]
    for place, quantity in enumerate(quantities):
        rows = frame[frame["quantity"] == quantity.title]
        inside = agree[rows.index]
        with columns[place]:
            unit = "share" if quantity.unit == "1" else quantity.unit
            rows = rows.assign(cell=(rows["scenario"] + " " + rows["load"]).str.strip())
            st.altair_chart(
                charts.scatter(rows, quantity.title, unit, quantity.relative), key=f"shipped-{place}"
            )
            st.caption(html.markdown(f"{inside.sum()} of {len(rows)} agree. Limit: {quantity.limit}."))
    with st.expander("All of them"):
        st.dataframe(frame, hide_index=True)


def _empty(store: RunStore) -> None:
    section("Your own runs")
    st.markdown(
        f"Nothing in {html.markdown(str(store.root))} has been run on both backends yet. Run a scenario on "
        "the twin and on this machine; that needs root and cgroups, and takes some four minutes:"
    )
    st.code(_COMMAND, language="sh")
    st.caption("Runs go into the store of the user who runs it; set `TWINBED_STORE` to this store.")


def _choose(cells: Sequence[Cell]) -> Cell:
    """Return the chosen cell. The address remembers it."""
    scenario, load, policy = st.columns([3, 4, 5])
    names = list(dict.fromkeys(cell.scenario for cell in cells))
    name = scenario.selectbox("Scenario", names, index=_asked(names, "scenario"), key="validated_scenario")
    matching = [cell for cell in cells if cell.scenario == name]
    loads = list(dict.fromkeys(cell.variant for cell in matching))
    variant = loads[0]
    if len(loads) > 1:
        variant = load.selectbox("Load", loads, index=_asked(loads, "load"), key="validated_load")
    matching = [cell for cell in matching if cell.variant == variant]
    policies = [cell.policy for cell in matching]
    picked = policy.segmented_control(
        "Policy",
        policies,
        default=policies[_asked(policies, "policy")],
        format_func=lambda text: html.markdown(title(text)),
        required=True,
        key="validated_policy",
    )
    session.write_address({"scenario": name, "load": variant, "policy": str(picked)})
    return next(cell for cell in matching if cell.policy == picked)


def _asked(options: Sequence[str], key: str) -> int:
    return session.place(options, st.query_params.get(key, ""), key, f"validated_{key}") or 0


def _errors(cell: Cell) -> None:
    section("Error of the twin")
    st.html(table(cell))
    st.caption(
        f"Twin: median of {counted(len(cell.twin), 'run')}. "
        f"Testbed: median of {counted(len(cell.testbed), 'run')}, and what they spread over. "
        "The error is twin − testbed."
    )
    for line in present.company([cell]):
        st.warning(html.markdown(line))
    with st.expander("When the twin agrees"):
        st.markdown(html.markdown(RULE))


def _over_time(cell: Cell) -> None:
    section("Use and limit over time")
    pick, quantity_column, which = st.columns([3, 2, 3])
    names = list(cell.twin[0].manifest["workload"]["containers"])
    container = pick.selectbox("Container", names, key="validated_container")
    quantity = quantity_column.segmented_control(
        "Quantity", ["CPU", "Memory"], default="CPU", required=True, key="validated_quantity"
    )
    runs = _runs(cell, which)
    name = "cpu" if quantity == "CPU" else "memory"
    frame = charts.over_time(runs, str(container), name)
    _stack(charts.use_and_limit(frame, name), f"time-{name}")


def _latency(cell: Cell) -> None:
    if not all("requests" in run.tables for run in (*cell.twin, *cell.testbed)):
        return
    section("Latency over time")
    frame = charts.latency_over_time({charts.TWIN: cell.twin[0], charts.TESTBED: _repeat(cell)})
    if frame.empty:
        st.info("No request was answered.")
    else:
        _stack(charts.latency(frame), "latency")


def _runs(cell: Cell, place: st.delta_generator.DeltaGenerator) -> dict[str, Run]:
    if len(cell.testbed) > 1:
        place.selectbox(
            "Run on the testbed",
            range(len(cell.testbed)),
            format_func=lambda index: f"repeat {cell.testbed[index].manifest['repeat']}",
            key="validated_repeat",
        )
    return {charts.TWIN: cell.twin[0], charts.TESTBED: _repeat(cell)}


def _repeat(cell: Cell) -> Run:
    """Return the testbed's run that is shown. Another cell may have fewer repeats."""
    index = int(st.session_state.get("validated_repeat", 0))
    return cell.testbed[min(index, len(cell.testbed) - 1)]


def _stack(panels: Sequence[alt.Chart], key: str) -> None:
    stack = st.container(gap=None)
    for index, panel in enumerate(panels):
        stack.altair_chart(panel, key=f"{key}-{index}")


def _all(cells: Sequence[Cell]) -> None:
    section("All cells of this scenario")
    st.html(overview(cells))
    st.caption("  \n".join(html.markdown(line) for line in present.shares(cells)))


def _provenance(cell: Cell) -> None:
    with st.expander("Where these figures come from"):
        for key, value in present.facts([cell]).items():
            st.markdown(f"**{html.markdown(key)}**: {html.markdown(str(value))}")
        for run in (*cell.twin, *cell.testbed):
            st.code(run.id, language=None)


_COLORS = {
    Verdict.LIMIT: "rgba(0, 158, 115, 0.22)",
    Verdict.SPREAD: "rgba(86, 180, 233, 0.24)",
    Verdict.OUTSIDE: "rgba(213, 94, 0, 0.24)",
    Verdict.ONE_SIDED: "rgba(213, 94, 0, 0.24)",
    Verdict.NONE: "transparent",
}


def table(cell: Cell) -> str:
    """Return one row per compared quantity: twin, testbed, error, spread, limit, verdict."""
    heads = ("Quantity", "Twin", "Testbed", "Error", "Error (%)", "Spread of the testbed", "Limit", "Verdict")
    rows = [_row(judgement) for judgement in cell.judgements if judgement.verdict.counts]
    return str(parts().verdicts(heads, rows))


def overview(cells: Sequence[Cell]) -> str:
    """Return one row per cell, with a column for each quantity that any cell has. An entry is the verdict
    in words."""
    shown = [
        index
        for index in range(len(QUANTITIES))
        if any(cell.judgements[index].verdict.counts for cell in cells)
    ]
    heads = ("Load and policy", *(QUANTITIES[index].title for index in shown))
    rows = [
        (
            f"{cell.variant} · {title(cell.policy)}" if cell.variant else title(cell.policy),
            (),
            [_verdict(cell.judgements[index].verdict) for index in shown],
        )
        for cell in cells
    ]
    return str(parts().verdicts(heads, rows))


def _row(judgement: Judgement) -> tuple[str, Sequence[str], Sequence[tuple[str, str]]]:
    """Return the quantity, the texts of its figures, and the colour and words of its verdict."""
    quantity = judgement.quantity
    unit = "" if quantity.unit == "1" else f" ({quantity.unit})"
    texts = (
        _number(judgement.twin, quantity.decimals),
        _number(judgement.testbed, quantity.decimals),
        _number(judgement.error, quantity.decimals, signed=True),
        _number(100 * judgement.relative_error, 1, signed=True),
        f"{_number(judgement.low, quantity.decimals)} to {_number(judgement.high, quantity.decimals)}",
        quantity.limit,
    )
    return quantity.title + unit, texts, [_verdict(judgement.verdict)]


def _verdict(verdict: Verdict) -> tuple[str, str]:
    return _COLORS[verdict], str(verdict)


def _number(value: float, decimals: int, *, signed: bool = False) -> str:
    if math.isnan(value):
        return ABSENT
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    return text.replace("-", "\N{MINUS SIGN}")
