"""The page "Sweep": the store's sweeps and tunings, while they run and afterwards.

For: this page, which reads the store only. Not for: making sweeps (`twinbed sweep`, `twinbed tune`), means
(lab.sweep.result) or charts (lab.charts.sweep).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import altair as alt
import pandas as pd
import streamlit as st

from lab import kinds
from lab.ask.kind import Kind
from lab.charts import words
from lab.charts.palette import title
from lab.charts.sweep import pareto, points
from lab.explorer import html, running, sections, session
from lab.explorer.sections import fragment, section
from lab.runs.compare import INTERVALS
from lab.runs.metric import Metric, censored_key
from lab.runs.store import RunStore
from lab.sweep.book import Course, Noted, Tuning, course, flags, sweeps, tunings
from lab.sweep.page import MOST_DRAWN, NOT_DRAWN, figures
from lab.sweep.result import differing, means
from twinbed.text import counted

_EVERY_S = 3.0
"""Interval at which an unfinished sweep is read again, s."""
_COMMAND = "twinbed sweep cluster --vary cluster.synthetic.per_hour=3,6,9 --seeds 0:5"


def page() -> None:
    """Draw the page."""
    running.take_finished()
    sections.title("Sweep", "How does an answer change with settings and seeds, and which are best?")
    running.show()
    root = RunStore().root
    known = {kind.name: kind for kind in kinds.KINDS}
    found: dict[str, Noted | Tuning] = {
        **{sweep.id: sweep for sweep in sweeps(root) if sweep.kind in known},
        **{tuning.id: tuning for tuning in tunings(root)},
    }
    if not found:
        st.markdown(f"No sweep and no tuning is in {html.markdown(str(root))} yet. For example:")
        st.code(_COMMAND, language="sh")
        return
    sweep = found[_chosen(found)]
    if isinstance(sweep, Tuning):
        fragment(_show_tuning, run_every=None if sweep.ended else _EVERY_S)(root, sweep)
        return
    kind = known[sweep.kind]
    whole = _course(root, sweep, kind).whole
    fragment(_show, run_every=None if whole else _EVERY_S)(root, sweep, kind, whole)


def _chosen(found: Mapping[str, Noted | Tuning]) -> str:
    """Return the id of the chosen sweep. The address remembers it."""
    asked = session.recalled("sweep_chosen", "sweep", found)
    if st.session_state.get("sweep_chosen") not in found:
        st.session_state["sweep_chosen"] = asked if asked in found else next(iter(found))
        if asked and asked not in found:
            st.warning(html.markdown(f"The sweep {asked} of the address is not stored here."))
    chosen: str = st.selectbox(
        "Sweep", list(found), format_func=lambda key: _titled(found[key]), key="sweep_chosen"
    )
    session.remember("sweep_chosen")
    session.write_address({"sweep": chosen})
    return chosen


def _titled(asked: Noted | Tuning) -> str:
    about = f" · {asked.aim}" if isinstance(asked, Tuning) else ""
    return f"{asked.title}{about} · {asked.id}"


def _show_tuning(root: Path, drawn: Tuning) -> None:
    """Show the progress of a tuning. drawn: its state when the whole page was drawn."""
    now = next((tuning for tuning in tunings(root) if tuning.id == drawn.id), drawn)
    if now.ended != drawn.ended:
        st.rerun()
    state = "Ended" if now.ended else "Running, or stopped: the same command continues it"
    share = 1.0 if now.ended else min(1.0, now.done / max(now.trials, 1))
    st.progress(share, html.markdown(f"{state}. {now.done:,} of {counted(now.trials, 'trial')}."))
    section(f"Best{'' if now.ended else ' so far'}{', and the Pareto front' if now.axes else ''}")
    st.dataframe(pd.DataFrame(now.lines, columns=list(now.header)), hide_index=True)
    st.markdown("\n".join(f"- {html.markdown(note)}" for note in now.notes))
    if now.points:
        section("Trade-off between the two figures")
        frame = pd.DataFrame(now.points, columns=["x", "y", "label", "best"]).assign(line="trials")
        one, two = now.axes
        st.altair_chart(pareto(frame, "x", "y", (one, two)), key="tuning")
        st.caption("Each point is a trial with all seeds. No trial is better in both than one on the line.")
    if 0 < len(now.tried) <= MOST_DRAWN:
        _show_tried(now)


def _show_tried(tuning: Tuning) -> None:
    """Draw the metric of a tuning over each of its keys, a point per trial."""
    values, means, halves, states = zip(*tuning.tried, strict=True)
    tried = pd.DataFrame({"mean": means, "line": states}).assign(
        low=lambda frame: frame["mean"] - pd.Series(halves, dtype=float).fillna(0.0),
        high=lambda frame: frame["mean"] + pd.Series(halves, dtype=float).fillna(0.0),
    )
    for key, column in zip(tuning.keys, zip(*values, strict=True), strict=True):
        section(f"Trials over {key}")
        chart = points(
            tried.assign(value=column), "value", "mean", (key, tuning.heading), log=tuning.keys[key]
        )
        st.altair_chart(chart, key=f"tuning-{key}")
        st.caption("Each point is a trial: its mean over the seeds, and the 95 % interval.")


def _readable(frame: pd.DataFrame, metrics: Sequence[Metric]) -> tuple[pd.DataFrame, list[Metric]]:
    """Return runs and metrics as people read them: policies by their titles, long durations in h or d."""
    told, frame = [], frame.assign(policy=frame["policy"].map(title))
    for metric in metrics:
        size, unit = words.unit(float(frame[metric.key].max()))
        if metric.unit == "s" and size > 1:
            frame[metric.key] /= size
            metric = replace(metric, unit=unit, decimals=2)
        told.append(metric)
    return frame, told


def _course(root: Path, sweep: Noted, kind: Kind) -> Course:
    metrics = kind.metrics()
    return course(root, sweep, [*(metric.key for metric in metrics), *flags(metrics)])


def _show(root: Path, sweep: Noted, kind: Kind, whole: bool) -> None:
    """Show the progress of a sweep. whole: whether it was complete when the whole page was drawn."""
    now = _course(root, sweep, kind)
    if now.whole != whole:
        st.rerun()
    done = len(now.frame)
    total = max(done, len(sweep.labels) * sweep.seeds)  # It may have had more seeds before.
    state = "Ended" if whole else "Running, or stopped: the same command with --resume continues it"
    st.progress(done / max(total, 1), html.markdown(f"{state}. {done:,} of {counted(total, 'run')}."))
    if len(now.failures):
        with st.expander(f"{counted(len(now.failures), 'run')} failed"):
            st.dataframe(now.failures, hide_index=True)
    if now.frame.empty:
        st.markdown("No run has ended yet.")
        return
    metrics = {metric.key: metric for metric in kind.metrics()}
    widget = f"sweep_figures_{sweep.id}"
    usual = [metric.key for metric in differing(now.frame, kind.metrics())[:2]]
    picked = st.multiselect(
        "Figures",
        list(metrics),
        default=st.session_state.get(f"last-{widget}", usual),
        format_func=lambda key: metrics[key].title,
        key=widget,
        on_change=session.remember,
        args=(widget,),
    )
    shown = [metrics[key] for key in picked]
    section("Means over the seeds")
    frame, shown = _readable(now.frame, shown)
    table = means(frame, sweep.keys, shown)
    headings = {metric.key: metric.heading for metric in shown}
    spreads = {f"{key}_ci95": f"± {heading}" for key, heading in headings.items()}
    bounds = {censored_key(key): f"{heading}: a lower bound" for key, heading in headings.items()}
    table = table.drop(columns=[flag for flag in bounds if flag in table and not table[flag].any()])
    forms = {
        heading: st.column_config.NumberColumn(format=f"%.{max(metric.decimals, 1)}f")
        for metric in shown
        for heading in (headings[metric.key], spreads[f"{metric.key}_ci95"])
    }
    st.dataframe(table.rename(columns=headings | spreads | bounds), hide_index=True, column_config=forms)
    st.caption(html.markdown(INTERVALS if len(table) <= MOST_DRAWN else f"{INTERVALS} {NOT_DRAWN}"))
    for number, (heading, figure) in enumerate(figures(frame, sweep.keys, shown)):
        section(heading)
        assert isinstance(figure.chart, alt.Chart | alt.LayerChart)
        st.altair_chart(figure.chart, key=f"sweep-{number}")
        st.caption(html.markdown(figure.caption))
    with st.expander("All runs"):
        st.dataframe(pd.DataFrame(now.frame.drop(columns="cell")), hide_index=True)
