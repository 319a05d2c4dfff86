"""Shows the results of runs with clients: latency, throughput, cost, slack, waiting services, reasons of
limit changes.

For: the part that the pages "Services" and "Runs" share. Not for: choosing runs (the pages), reading
(lab.charts.services), drawing (lab.charts.services_drawing), or results that runs of traces have, too
(lab.explorer.results).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from lab.charts import series, services
from lab.charts import services_drawing as drawing
from lab.charts.palette import Shown, shown
from lab.containers.run.waiting import told
from lab.explorer import cached, downloads, html, results
from lab.explorer.sections import fragment, section
from lab.explorer.selection import ServiceChoices
from lab.runs.store import Run
from twinbed import ScenarioError

_STRETCHES = 300
"""Number of stretches over time. More would be finer than a screen shows, with too few requests for a 99th
percentile."""

_NOTHING_CHOSEN = ServiceChoices()


def show(
    runs: Sequence[Run],
    chosen: ServiceChoices = _NOTHING_CHOSEN,
    keep: Callable[..., object] = lambda **_looked_at: None,
) -> None:
    """Show everything about these runs.

    chosen: what to show first (container, percentile); keep: called with another choice, by the field's name.
    """
    entries = shown(runs)
    results.about(runs)
    st.html(html.service_cards(entries))
    results.remarks(runs)
    frames = {look.title: cached.clients_over_time(look.run, _STRETCHES) for look in entries}
    _latency(entries, frames, chosen.percentile, keep)
    _throughput(entries, frames)
    _distribution_and_cost(entries)
    results.over_time(entries, chosen.container, lambda name: keep(container=name))
    _waiting(entries)
    _by_service(entries)
    results.distributions(entries)
    results.figures(entries)


@fragment
def _latency(
    entries: Sequence[Shown], frames: dict[str, pd.DataFrame], percentile: str, keep: Callable[..., object]
) -> None:
    section("Latency over time")
    key = st.segmented_control(
        "Percentile", list(services.PERCENTILES), default=percentile, required=True, key="shown_percentile"
    )
    keep(percentile=key)
    width = services.stretch_s(entries[0].run, _STRETCHES)
    answered = {title: frame for title, frame in frames.items() if frame[key].notna().any()}
    if not answered:
        st.info("No request was answered, so there is no latency.")
        return
    st.altair_chart(drawing.latency_over_time(answered, entries, key), key="latency")
    slow = f"{100 * (1 - services.PERCENTILES[key]):.0f} %"
    st.caption(
        f"{html.markdown(slow)} of the requests that came in {html.markdown(_stretch(width))} took longer "
        "than the line. Requests without an answer count: a triangle is a lower bound, because they still "
        "waited when the run ended. The axis is logarithmic. Point at a time to compare."
    )
    downloads.clients(entries, frames)


def _stretch(width_s: float) -> str:
    return "the same second" if width_s == 1 else f"the same {width_s:g} s"


def _throughput(entries: Sequence[Shown], frames: dict[str, pd.DataFrame]) -> None:
    section("Throughput and failures")
    st.altair_chart(drawing.throughput(frames, entries), key="throughput")
    st.caption(
        "Lines: answers. Grey: requests, the same under every policy. A line below the grey means that "
        "requests pile up or are lost. A line above it means that late requests are answered."
    )
    lost = [cached.fates(look.run) for look in entries]
    if not any(len(frame) for frame in lost):
        st.caption("Every request was answered under every policy.")
        return
    st.altair_chart(drawing.failures(frames, entries), key="failures")
    st.caption("Share of the requests of that time that were never answered.")
    st.altair_chart(drawing.fates(series.by_run(entries, lost), entries), key="fates")
    st.caption(
        "Why requests got no answer: *given up* and *turned away* are signs of too little CPU, *lost on the "
        "way* of containers that were killed or restarted. A policy without a bar answered everything."
    )


def _distribution_and_cost(entries: Sequence[Shown]) -> None:
    left, right = st.columns(2)
    with left:
        section("All latencies")
        frame = series.by_run(entries, [cached.latency_distribution(look.run) for look in entries])
        if frame.empty:
            st.info("No request was answered, so there is no latency.")
        else:
            st.altair_chart(drawing.latency_distribution(frame, entries), key="latencies")
            st.caption(
                "Share of all requests that were answered within a latency. Further left is faster. A line "
                "that ends below 100 % leaves the rest without an answer."
            )
    with right:
        section("Cost")
        currency = str(entries[0].run.manifest["spec"]["price"]["currency"])
        limited = [look for look in entries if look.run.policy != "unlimited"]
        if not limited:
            st.info("Without limits nothing is reserved, so there is no cost.")
            return
        frame = series.by_run(limited, [services.costs(look.run) for look in limited])
        st.altair_chart(drawing.costs(frame, limited, currency), key="costs")
        st.caption(
            f"{html.markdown(currency)} an hour for reserved CPU (full colour) and memory (pale). In "
            "brackets: the price of a million answers."
        )


def _picked(entries: Sequence[Shown], key: str) -> Run:
    """Show the policies, and return the run of the one that is picked."""
    runs = {look.title: look.run for look in entries}
    title = st.segmented_control(
        "Policy", list(runs), default=entries[0].title, format_func=html.markdown, required=True, key=key
    )
    return runs[str(title)]


@fragment
def _waiting(entries: Sequence[Shown]) -> None:
    section("Where the slowest 1 % of requests wait")
    run = _picked(entries, "waiting_policy")
    try:
        found = cached.waiting(run)
    except ScenarioError as error:
        st.info(html.markdown(str(error)))
        return
    st.altair_chart(drawing.waiting(found.rows), key="waiting")
    st.caption(html.markdown(" ".join(told(found))))


@fragment
def _by_service(entries: Sequence[Shown]) -> None:
    section("Service by service")
    run = _picked(entries, "shown_policy")
    frame = cached.by_container(run)
    st.dataframe(
        frame.sort_values("throttled_share", ascending=False, kind="stable"),
        hide_index=True,
        column_config=_columns(frame),
        height=min(470, 36 * (len(frame) + 1) + 3),
        key="by_container",
    )
    st.caption(
        "Most throttled first; click a heading to sort otherwise. Little slack and much throttling mean that "
        "the limit is too low. Much slack and no throttling mean that it is too high."
    )
    kinds = cached.by_kind(run)
    # The cells stay numbers, so that a click on a heading sorts them as such.
    cells = kinds[["kind", "requests", "not_answered_share", "p50", "p99"]].style
    for key in ("p50", "p99"):
        for at_least in (False, True):
            rows = kinds[f"{key}{services.AT_LEAST}"] == at_least
            cells.format(partial(drawing.latency_text, at_least=at_least), subset=(rows, key))
    st.dataframe(
        cells,
        hide_index=True,
        column_config={
            "kind": st.column_config.TextColumn("Kind of request"),
            "requests": st.column_config.NumberColumn("Requests", format="localized"),
            "p50": st.column_config.NumberColumn("Latency p50"),
            "p99": st.column_config.NumberColumn("Latency p99"),
            "not_answered_share": st.column_config.NumberColumn("Not answered", format="percent"),
        },
        height=min(470, 36 * (len(kinds) + 1) + 3),
        key="by_kind",
    )
    st.caption("The same policy by kind of request. Kinds go through different services.")


def _columns(frame: pd.DataFrame) -> dict[str, Any]:
    config = st.column_config
    most = float(frame["throttled_share"].max())  # Not a number if no container was ever up.
    return {
        "container": config.TextColumn("Container", pinned=True),
        "visits_rps": config.NumberColumn(
            "Visits (1/s)", format="%.1f", help="Calls that it answered, per second of the run."
        ),
        "usage_cores": config.NumberColumn(
            "Use (cores)", format="%.3f", help="Mean CPU use while it was up."
        ),
        "quota_cores": config.NumberColumn(
            "Limit (cores)", format="%.3f", help="Mean CPU limit while it was up; none: not limited."
        ),
        "cpu_slack_p50_cores": config.NumberColumn(
            "Slack p50 (cores)", format="%.3f", help="Median of limit − use over its periods."
        ),
        "throttled_share": config.ProgressColumn(
            "Throttled",
            format="percent",
            min_value=0.0,
            max_value=most if most > 0.01 else 0.01,
            help="Share of its periods in which its limit stopped it.",
        ),
        "memory_slack_p50_mib": config.NumberColumn(
            "Memory slack (MiB)", format="%.1f", help="Median of limit − memory over its periods."
        ),
        "turned_away": config.NumberColumn(
            "Turned away", format="%d", help="Calls refused because its queue was full."
        ),
        "oom_kills": config.NumberColumn("OOM kills", format="%d"),
    }
