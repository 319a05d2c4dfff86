"""What came of some runs: cards, limits over time, distributions, all figures, where they come from.

For: the part that the Containers and the Runs page share. Not for: choosing runs (the pages), reading
(lab.charts.series) or drawing (lab.charts.drawing).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from lab.charts import drawing, series, services
from lab.charts.palette import EVENTS, Shown, shown
from lab.explorer import cached, downloads, html
from lab.runs.store import Run

_MOST_ROWS = 6000
"""Rows in all the charts of one container together: more than the pixels of any screen."""
_MOST_SPANS = 600
_MOST_EVENTS = 300
_SHARE_BUCKETS = 180


def nobody(_container: str) -> None:
    """For pages that do not keep which container is looked at."""


def show(runs: Sequence[Run], container: str = "", on_container: Callable[[str], object] = nobody) -> None:
    """Everything about these runs. container: the one to look at first; on_container: told of another."""
    entries = shown(runs)
    about(runs)
    st.html(html.cards(entries))
    remarks(runs)
    over_time(entries, container, on_container)
    distributions(entries)
    figures(entries)


def about(runs: Sequence[Run]) -> None:
    """What the runs are about, in a line."""
    facts = runs[0].kind.facts(runs)
    asked = f" Requests: {facts['requests']}." if "requests" in facts else ""
    st.caption(f"{facts['workload']}.{asked} Global limits: {facts['global limits']}. Seed {facts['seed']}.")


def remarks(runs: Sequence[Run]) -> None:
    """What a careful colleague would say about the runs, if anything."""
    if found := runs[0].kind.remarks(runs):
        st.info("  \n".join(html.markdown(remark) for remark in found))


def _among(runs: Sequence[Run]) -> str:
    if not any("requests" in run.tables for run in runs):
        return ""
    return (
        f" (of latencies: among runs that answered at least {1 - html.MOST_UNANSWERED:.0%} of the requests)"
    )


def figures(entries: Sequence[Shown]) -> None:
    """All figures, what can be taken away, and where it all comes from."""
    runs = [each.run for each in entries]
    st.subheader("All figures", anchor="figures")
    st.html(html.table(entries))
    st.caption(
        f"{runs[0].kind.legend(runs)} The best of each line is marked{_among(runs)}; point at a line for its "
        "definition."
    )
    downloads.whole(entries)
    _provenance(runs)


@st.fragment
def over_time(entries: Sequence[Shown], container: str, on_container: Callable[[str], object]) -> None:
    """One container's limit and use under every run, and why its limit changed."""
    st.subheader("Limit and use over time", anchor="time")
    names = list(
        dict.fromkeys(name for each in entries for name in each.run.manifest["workload"]["containers"])
    )
    longest = max(series.duration_s(each.run) for each in entries)
    pick, what, when = st.columns([3, 2, 5])
    chosen = pick.selectbox(
        "Container",
        names,
        index=names.index(container) if container in names else _busiest(entries[0].run, names),
        key="shown_container",
    )
    quantity = what.segmented_control(
        "Quantity", ["CPU", "Memory"], default="CPU", required=True, key="shown_quantity"
    )
    window = when.slider(
        "Time window (s)",
        0.0,
        longest,
        (0.0, longest),
        step=_step(longest),
        format="%.1f",
        key="shown_window",
    )
    on_container(str(chosen))
    if window[1] <= window[0]:
        st.info("The time window is empty: pull its ends apart.")
        return
    _stacked(entries, str(chosen), "cpu" if quantity == "CPU" else "memory", window)
    if quantity == "CPU":
        _why(entries, str(chosen), window)
    downloads.series(entries, str(chosen))


def _busiest(run: Run, names: list[str]) -> int:
    """The container with most CPU reserved: the one that most is to be learned from."""
    frame = run.frame("containers", ["container", "reserved_core_h"])
    return names.index(str(frame["container"].iloc[int(frame["reserved_core_h"].fillna(0).argmax())]))


def _step(longest: float) -> float:
    return 0.1 if longest <= 600 else 1.0 if longest <= 36_000 else 60.0


def _stacked(entries: Sequence[Shown], name: str, quantity: str, window: tuple[float, float]) -> None:
    use, limit = ("usage_cores", "quota_cores") if quantity == "cpu" else ("memory_mib", "limit_mib")
    here = [each for each in entries if name in each.run.manifest["workload"]["containers"]]
    frames = {each.title: _inside(cached.container(each.run, name), window) for each in here}
    here = [each for each in here if len(frames[each.title])]
    if not here:
        st.info(f"{name} has no period in this window.")
        return
    top = 1.06 * max(float(frames[each.title][[use, limit]].max().max()) for each in here)
    if not top > 0:
        top = 1.0
    buckets = max(100, _MOST_ROWS // (5 * len(here)))
    marked: set[str] = set()
    stack = st.container(gap=None)
    for each in here:
        frame = frames[each.title]
        happened = _events(each.run, name, quantity, window, top)
        marked |= set(happened["kind"])
        stack.html(_heading(each, frame, quantity))
        chart = drawing.limit_and_use(
            series.thin(frame, [use, limit], buckets),
            series.throttled_spans(frame, _MOST_SPANS) if quantity == "cpu" else pd.DataFrame(),
            happened,
            quantity=quantity,
            color=each.color,
            window=window,
            top=top,
            last=each is here[-1],
        )
        stack.altair_chart(chart, key=f"time-{each.run.id}")
    _key(quantity, marked)


def _why(entries: Sequence[Shown], name: str, window: tuple[float, float]) -> None:
    here = [each for each in entries if name in each.run.manifest["workload"]["containers"]]
    changes = [services.limit_changes(_inside(cached.container(each.run, name), window)) for each in here]
    if any(len(frame) for frame in changes):
        st.markdown("**Why did the limit change here?**")
        st.html(html.why(here, changes))
        st.caption(
            "How often the CPU limit was raised (↑) and lowered (↓) in this window, by the reason given."
        )
    else:
        st.caption("No policy changed the CPU limit in this window.")


def _inside(frame: pd.DataFrame, window: tuple[float, float]) -> pd.DataFrame:
    return frame[(frame["at_s"] > window[0]) & (frame["at_s"] <= window[1] + 1e-9)]


def _events(run: Run, name: str, quantity: str, window: tuple[float, float], top: float) -> pd.DataFrame:
    """The events to mark: CPU shows what interrupts the container, memory all. Where it is: `y`."""
    frame = cached.events(run, name)
    frame = frame[(frame["at_s"] >= window[0]) & (frame["at_s"] <= window[1])]
    if quantity == "cpu":
        frame = frame[frame["kind"].isin(["kill", "restart"])]
        frame = frame.assign(y=frame["kind"].map({"kill": 0.94, "restart": 0.8}).astype(float) * top)
    else:
        frame = frame.assign(y=frame["limit_mib"].fillna(0.93 * top))
    # Of many, every kind keeps its share: a chart cannot tell a thousand apart.
    step = max(1, len(frame) // _MOST_EVENTS)
    rare = frame["kind"].isin(["kill", "restart"])
    return pd.concat([frame[rare], frame[~rare].iloc[::step]]).sort_values("at_s", ignore_index=True)


def _heading(each: Shown, frame: pd.DataFrame, quantity: str) -> str:
    up = frame[frame["up"]]
    if quantity == "cpu":
        remark = (
            f"throttled in {up['throttled'].mean():.1%} of its periods here" if len(up) else "not running"
        )
    else:
        remark = (
            f"{(up['limit_mib'] - up['memory_mib']).mean():,.0f} MiB unused on average" if len(up) else ""
        )
    return html.heading(each, remark)


def _key(quantity: str, kinds: set[str]) -> None:
    parts = ["Grey area: use. Coloured line: limit."]
    if quantity == "cpu":
        parts.append(
            "Orange strip on the floor: throttled. Point at a chart for the reason of the limit, and narrow "
            "the time window to see single changes."
        )
    marks = [
        f"{look.shape.replace('-up', '')} = {look.text}" for kind, look in EVENTS.items() if kind in kinds
    ]
    if marks:
        parts.append(f"Marks: {', '.join(marks)}.")
    st.caption(" ".join(parts))


def distributions(entries: Sequence[Shown]) -> None:
    """How much slack there is how often, and where containers were throttled."""
    st.subheader("Slack and throttling, all containers", anchor="slack")
    left, right = st.columns(2)
    for place, quantity, title, form in (
        (left, "cpu", "CPU slack: limit − use (cores)", ".3f"),
        (right, "memory", "Memory slack: limit − use (MiB)", ",.1f"),
    ):
        frame = by_run(entries, [cached.slack_distribution(each.run, quantity) for each in entries])
        if frame.empty:
            place.info("The trace has no memory, so there is no memory slack.")
        else:
            place.altair_chart(
                drawing.distribution(frame, entries, title=title, form=form), key=f"cdf-{quantity}"
            )
    shares = by_run(entries, [cached.throttled_share(each.run, _SHARE_BUCKETS) for each in entries])
    if shares.empty or not shares["share"].any():
        st.info("No container was throttled in any period.")
    else:
        st.altair_chart(drawing.shares(shares, entries), key="shares")


def by_run(entries: Sequence[Shown], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The runs' frames below each other, each row with its run's title; those without rows left out."""
    parts = [
        frame.assign(title=each.title) for each, frame in zip(entries, frames, strict=True) if len(frame)
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["share"])


def _provenance(runs: Sequence[Run]) -> None:
    with st.expander("Where these figures come from"):
        st.markdown(f"**Machine**: {runs[0].kind.facts(runs)['machine']}")
        for note in runs[0].kind.notes(runs):
            st.markdown(f"- {html.markdown(note)}")
        st.markdown("**Runs** (stored; the same question has the same id everywhere)")
        for run in runs:
            st.code(run.id, language=None)
