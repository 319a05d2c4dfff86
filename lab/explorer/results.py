"""Shows the results of some runs: cards, limits over time, distributions, all figures, their sources.

For: the part that the pages "Containers" and "Runs" share. Not for: choosing runs (the pages), reading
(lab.charts.series) or drawing (lab.charts.drawing).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from lab.charts import drawing, series, services, words
from lab.charts.palette import EVENTS, INK, Shown, shown
from lab.explorer import cached, downloads, html, session
from lab.explorer.sections import fragment, section
from lab.runs.store import Run

_MOST_ROWS = 6000
"""Largest number of rows in all charts of one container together: more than a screen has pixels."""
_MOST_SPANS = 600
_MOST_EVENTS = 300
_SHARE_BUCKETS = 180


def show(
    runs: Sequence[Run], container: str = "", on_container: Callable[[str], object] = lambda _name: None
) -> None:
    """Show everything about these runs. container: shown first; on_container: called with another choice."""
    entries = shown(runs)
    about(runs)
    st.html(html.cards(entries))
    remarks(runs)
    over_time(entries, container, on_container)
    distributions(entries)
    figures(entries)


def about(runs: Sequence[Run]) -> None:
    """Show one line about the subject of the runs."""
    facts = runs[0].kind.facts(runs)
    asked = f" Requests: {facts['requests']}." if "requests" in facts else ""
    st.caption(
        html.markdown(
            f"{facts['workload']}.{asked} Global limits: {facts['global limits']}. Seed {facts['seed']}."
        )
    )


def remarks(runs: Sequence[Run]) -> None:
    """Show the remarks that a reader of these runs needs, if there are any."""
    if remarks := runs[0].kind.remarks(runs):
        st.info("  \n".join(html.markdown(remark) for remark in remarks))


def figures(entries: Sequence[Shown]) -> None:
    """Show all figures, the downloads, and the sources."""
    runs = [look.run for look in entries]
    section("All figures")
    st.html(html.table(entries))
    st.caption(
        f"{html.markdown(runs[0].kind.legend(runs))} The best of each line is marked; point at a line for "
        "its definition."
    )
    downloads.whole(entries)
    _provenance(runs)


@fragment
def over_time(entries: Sequence[Shown], container: str, on_container: Callable[[str], object]) -> None:
    """Show one container's limit and use under every run, and why its limit changed."""
    section("Limit and use over time")
    names = list(
        dict.fromkeys(name for look in entries for name in look.run.manifest["workload"]["containers"])
    )
    longest = max(series.duration_s(look.run) for look in entries)
    pick, quantity_column, when = st.columns([3, 2, 5])
    place = session.place(names, container, "container", "shown_container")
    chosen = pick.selectbox(
        "Container",
        names,
        index=_busiest(entries[0].run, names) if place is None else place,
        key="shown_container",
    )
    quantity = quantity_column.segmented_control(
        "Quantity", ["CPU", "Memory"], default="CPU", required=True, key="shown_quantity"
    )
    size, unit, _ = words.ticks(0.0, longest, 1)
    most = longest / size
    begin, end = when.slider(
        f"Time window ({unit})",
        0.0,
        most,
        (0.0, most),
        step=_step(longest) / size,
        format="%.1f" if size == 1 else "%.2f",
        key="shown_window",
    )
    window = (begin * size, end * size)
    on_container(str(chosen))
    if window[1] <= window[0]:
        st.info("The time window is empty: move its ends apart.")
        return
    _stacked(entries, str(chosen), "cpu" if quantity == "CPU" else "memory", window)
    if quantity == "CPU":
        _why(entries, str(chosen), window)
    downloads.series(entries, str(chosen))


def _busiest(run: Run, names: list[str]) -> int:
    """Return the index of the container with the most reserved CPU, which shows most."""
    frame = run.frame("containers", ["container", "reserved_core_h"])
    return names.index(str(frame["container"].iloc[int(frame["reserved_core_h"].fillna(0).argmax())]))


def _step(longest: float) -> float:
    return 0.1 if longest <= 600 else 1.0 if longest <= 36_000 else 60.0


def _stacked(entries: Sequence[Shown], name: str, quantity: str, window: tuple[float, float]) -> None:
    use, limit = ("usage_cores", "quota_cores") if quantity == "cpu" else ("memory_mib", "limit_mib")
    present = [look for look in entries if name in look.run.manifest["workload"]["containers"]]
    frames = {look.title: _inside(cached.container(look.run, name), window) for look in present}
    present = [look for look in present if len(frames[look.title])]
    if not present:
        st.info(f"{html.markdown(name)} has no period in this window.")
        return
    top = _top([frames[look.title][[use, limit]] for look in present])
    buckets = max(100, _MOST_ROWS // (5 * len(present)))
    marked: set[str] = set()
    stack = st.container(gap=None)
    for look in present:
        frame = frames[look.title]
        happened = _events(look.run, name, quantity, window, top)
        marked |= set(happened["kind"])
        stack.html(_heading(look, frame, quantity))
        chart = drawing.limit_and_use(
            series.with_begins(
                series.thin(frame, [use, limit], buckets), look.run.manifest["workload"]["period_s"]
            ),
            series.throttled_spans(frame, _MOST_SPANS) if quantity == "cpu" else pd.DataFrame(),
            happened,
            quantity=quantity,
            color=look.color,
            time=drawing.Time(window, labels=look is present[-1], start_s=drawing.start_s(present)),
            top=top,
        )
        if st.context.theme.type != "dark":  # Many marks are drawn on a canvas, which no style reaches.
            chart = chart.configure_axis(labelColor=INK, titleColor=INK)
        stack.altair_chart(chart, key=f"time-{look.run.id}")
    _key(quantity, marked)


def _top(frames: Sequence[pd.DataFrame]) -> float:
    """Return the upper end of an axis that all these values fit. What is not a number is left out, as in a
    run that was down all the time."""
    top = 1.06 * float(pd.concat(frames).max().max())
    return top if top > 0 else 1.0


def _why(entries: Sequence[Shown], name: str, window: tuple[float, float]) -> None:
    present = [look for look in entries if name in look.run.manifest["workload"]["containers"]]
    changes = [services.limit_changes(_inside(cached.container(look.run, name), window)) for look in present]
    if any(len(frame) for frame in changes):
        st.markdown("**Why did the limit change here?**")
        st.html(html.why(present, changes))
        if long := series.row([look.run for look in present]):
            about = (
                f"The CPU limit is a mean over {long} here. Number of times that it was above (↑) and below "
                "(↓) the one before, by the reason of its last change. The table counts every change."
            )
        else:
            about = (
                "Number of times that the CPU limit was raised (↑) and lowered (↓) in this window, by reason."
            )
        st.caption(html.markdown(about))
    else:
        st.caption("No policy changed the CPU limit in this window.")


def _inside(frame: pd.DataFrame, window: tuple[float, float]) -> pd.DataFrame:
    return frame[(frame["at_s"] > window[0]) & (frame["at_s"] <= window[1] + 1e-9)]


def _events(run: Run, name: str, quantity: str, window: tuple[float, float], top: float) -> pd.DataFrame:
    """Return the events to mark, with their height `y`: for CPU those that interrupt the container, for
    memory all."""
    frame = cached.events(run, name)
    frame = frame[(frame["at_s"] >= window[0]) & (frame["at_s"] <= window[1])]
    if quantity == "cpu":
        frame = frame[frame["kind"].isin(["kill", "restart"])]
        frame = frame.assign(y=frame["kind"].map({"kill": 0.94, "restart": 0.8}).astype(float) * top)
    else:
        frame = frame.assign(y=frame["limit_mib"].fillna(0.93 * top))
    # A chart cannot show a thousand events separately. The drawn events keep the shares of all kinds.
    step = max(1, len(frame) // _MOST_EVENTS)
    rare = frame["kind"].isin(["kill", "restart"])
    return pd.concat([frame[rare], frame[~rare].iloc[::step]]).sort_values("at_s", ignore_index=True)


def _heading(look: Shown, frame: pd.DataFrame, quantity: str) -> str:
    up = frame[frame["up"]]
    if up.empty:
        remark = "not running"
    elif quantity == "cpu":
        remark = f"throttled in {up['throttled_periods'].sum() / up['periods'].sum():.1%} of its periods here"
    else:
        unused = (up["limit_mib"] - up["memory_mib"]).mean()
        remark = "no memory limit" if pd.isna(unused) else f"{unused:,.0f} MiB unused on average"
    return html.heading(look, remark)


def _key(quantity: str, kinds: set[str]) -> None:
    parts = ["Grey area: use. Coloured line: limit."]
    if quantity == "cpu":
        parts.append(
            "Orange strip at the bottom: throttled. Point at a chart for the reason of the limit, and narrow "
            "the time window to see single changes."
        )
    marks = [
        f"{look.shape.replace('-up', '')} = {look.text}" for kind, look in EVENTS.items() if kind in kinds
    ]
    if marks:
        parts.append(f"Marks: {', '.join(marks)}.")
    st.caption(" ".join(html.markdown(part) for part in parts))


def distributions(entries: Sequence[Shown]) -> None:
    """Show the distribution of slack, and where containers were throttled."""
    section("Slack and throttling, all containers")
    left, right = st.columns(2)
    for place, quantity, title, form, why_none in (
        (left, "cpu", "CPU slack: limit − use (cores)", ".3f", "No container has a CPU limit here"),
        (right, "memory", "Memory slack: limit − use (MiB)", ",.1f",
         "The trace has no memory, or no container has a memory limit here"),
    ):  # fmt: skip
        frame = series.by_run(entries, [cached.slack_distribution(look.run, quantity) for look in entries])
        if frame.empty:
            place.info(html.markdown(f"{why_none}, so there is no slack."))
        else:
            place.altair_chart(
                drawing.distribution(frame, entries, title=title, form=form), key=f"cdf-{quantity}"
            )
    if means := series.of_means([look.run for look in entries]):
        st.caption(html.markdown(means))
    shares = series.by_run(entries, [cached.throttled_share(look.run, _SHARE_BUCKETS) for look in entries])
    if shares.empty or not shares["share"].any():
        st.info("No container was throttled in any period.")
    else:
        st.altair_chart(drawing.shares(shares, entries), key="shares")


def _provenance(runs: Sequence[Run]) -> None:
    with st.expander("Where these figures come from"):
        st.markdown(f"**Machine**: {html.markdown(str(runs[0].kind.facts(runs)['machine']))}")
        for note in runs[0].kind.notes(runs):
            st.markdown(f"- {html.markdown(note)}")
        st.markdown("**Runs** (stored; the same question has the same id everywhere)")
        for run in runs:
            st.code(run.id, language=None)
