"""Charts of runs on a market: the offers of the zones, the job's machines and states, and its cost.

For: reports and the explorer's page "Market". Not for: computing metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt
import pandas as pd

from lab.ask.kind import Figure
from lab.charts.drawing import named
from lab.charts.palette import USAGE, Shown, shown, title
from lab.runs.labels import labels
from lab.runs.store import Run

_WIDTH = 900
_LOOKS = {
    "waiting": "#A9AFB6",
    "starting": "#E69F00",
    "on spot": "#1A7FC4",
    "on demand": "#D55E00",
    "leaving": "#7A4B9E",
}
"""Colour of each state of a job."""
_POLICY, _ZONE = alt.Tooltip("title:N", title="policy"), alt.Tooltip("zone:N", title="zone")
_COSTS = [
    _POLICY,
    alt.Tooltip("seed:O", title="seed"),
    alt.Tooltip("cost_usd:Q", title="cost (USD)", format=",.2f"),
    alt.Tooltip("optimum_usd:Q", title="least cost (USD)", format=",.2f"),
]
_SPAN = (
    alt.Tooltip("begin_h:Q", title="from (h)", format=",.2f"),
    alt.Tooltip("end_h:Q", title="to (h)", format=",.2f"),
)


def charts(runs: Sequence[Run]) -> Iterator[Figure]:
    """Yield the report's charts of these runs, in order."""
    yield from over_all(shown(runs))


def over_all(looks: Sequence[Shown]) -> Iterator[Figure]:
    """Yield the charts: the markets and the courses of the first seed's runs, and the cost of all."""
    seed = looks[0].run.seed
    same = [look for look in looks if look.run.seed == seed]
    markets = _markets(same)
    end_h = max(_end_s(offers) for *_, offers in markets) / 3600
    time = alt.X("begin_h:Q", title="Time (h)", scale=alt.Scale(domain=[0, end_h], nice=False))
    for machines, names, offers in markets:
        whose = f" to {'; '.join(names)}" if len(markets) > 1 else ""
        yield Figure(
            f"What the zones offer{whose} (seed {seed})",
            "A bar shows when a zone has enough machines. The darker it is, the dearer they are.",
            _offers(offers, machines, time),
        )
    yield Figure(
        f"What the job holds and does (seed {seed})",
        "Each row is a run, which works on spot or on demand. A cross marks machines that were taken away "
        "before the job could save: the work since the last save was lost.",
        _courses(same, time),
    )
    yield Figure(
        f"Cost (seed {seed})" if len(same) == len(looks) else "Cost",
        "Each point is a run. The grey tick is the least cost in hindsight for its seed, where it is known.",
        _costs(looks),
    )


def _markets(looks: Sequence[Shown]) -> list[tuple[int, list[str], pd.DataFrame]]:
    """Return for each different market the machines of the job, the titles of its runs, and its offers.

    Markets are alike if they are so until the first of them ends: a later deadline shows more of the same.
    """
    frames = [look.run.frame("market") for look in looks]
    first_s = min(_end_s(frame) for frame in frames)
    known: dict[tuple[int, str], tuple[list[str], pd.DataFrame]] = {}
    for look, frame in zip(looks, frames, strict=True):
        begun = frame[frame["begin_s"] < first_s]
        begun = begun.assign(end_s=begun["end_s"].clip(upper=first_s))
        key = look.run.manifest["spec"]["cloud"]["job"]["machines"], begun.to_csv(index=False)
        names, longest = known.get(key, ([], frame))
        known[key] = [*names, look.title], max(longest, frame, key=_end_s)
    return [(machines, *told) for (machines, _), told in known.items()]


def _end_s(offers: pd.DataFrame) -> float:
    return float(offers["end_s"].max())


def _offers(offers: pd.DataFrame, machines: int, time: alt.X) -> alt.Chart:
    frame = _hours(offers)
    there = frame[frame["available"] >= machines]
    return (
        alt.Chart(there, height=38 * frame["zone"].nunique() + 130, width=_WIDTH)
        .mark_bar(clip=True)
        .encode(
            x=time,
            x2="end_h:Q",
            y=_rows("zone", list(dict.fromkeys(frame["zone"]))),
            color=alt.Color(
                "spot_usd_h:Q",
                title="Spot price (USD/h)",
                scale=alt.Scale(scheme="blues", zero=True),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                _ZONE,
                alt.Tooltip("region:N", title="region"),
                alt.Tooltip("type:N", title="type"),
                alt.Tooltip("available:Q", title="machines"),
                alt.Tooltip("spot_usd_h:Q", title="spot price (USD/h)", format=",.3f"),
                *_SPAN,
            ],
        )
    )


def _courses(looks: Sequence[Shown], time: alt.X) -> alt.LayerChart:
    spans = pd.concat([_hours(look.run.frame("spans")).assign(title=look.title) for look in looks])
    works = spans["place"].where(spans["place"] == "on demand", "on spot")
    spans["what"] = spans["state"].where(spans["state"] != "working", works)
    lost = pd.concat([look.run.frame("losses").assign(title=look.title) for look in looks])
    lost = lost[lost["what"] == "lost"].assign(begin_h=lambda frame: frame["at_s"] / 3600)
    rows = _rows("title", [look.title for look in looks])
    bars = (
        alt.Chart(spans)
        .mark_bar(clip=True)
        .encode(
            x=time,
            x2="end_h:Q",
            y=rows,
            color=named("what", _LOOKS, columns=2),
            tooltip=[
                _POLICY,
                alt.Tooltip("what:N", title="state"),
                alt.Tooltip("place:N", title="place"),
                alt.Tooltip("reason:N", title="reason"),
                *_SPAN,
            ],
        )
    )
    marks = (
        alt.Chart(lost)
        .mark_point(shape="cross", filled=True, size=90, color="black", stroke="white")
        .encode(
            x=time,
            y=rows,
            tooltip=[_POLICY, _ZONE, alt.Tooltip("begin_h:Q", title="lost at (h)", format=",.2f")],
        )
    )
    return alt.LayerChart(layer=[bars, marks], height=38 * len(looks) + 140, width=_WIDTH)


def _costs(looks: Sequence[Shown]) -> alt.LayerChart:
    runs = [look.run for look in looks]
    names = [
        text.replace(run.policy, title(run.policy), 1) for run, text in zip(runs, labels(runs), strict=True)
    ]
    frame = pd.DataFrame(
        {
            "title": name,
            "seed": look.run.seed,
            "cost_usd": look.run.metrics["cost_usd"],
            "optimum_usd": look.run.manifest.get("optimum_usd"),
        }
        for look, name in zip(looks, names, strict=True)
    )
    titles = list(dict.fromkeys(names))
    colours = {name: look.color for look, name in reversed(list(zip(looks, names, strict=True)))}
    base = alt.Chart(frame).encode(y=_rows("title", titles), tooltip=_COSTS)
    points = base.mark_point(filled=True, size=80, opacity=0.8).encode(
        x=alt.X("cost_usd:Q", title="Cost (USD)", scale=alt.Scale(zero=True)),
        color=alt.Color(
            "title:N", legend=None, scale=alt.Scale(domain=titles, range=[colours[name] for name in titles])
        ),
    )
    ticks = base.mark_tick(thickness=2, color=USAGE).encode(x="optimum_usd:Q")
    return alt.LayerChart(layer=[points, ticks], height=38 * len(titles) + 70, width=_WIDTH)


def _hours(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(begin_h=frame["begin_s"] / 3600, end_h=frame["end_s"] / 3600)


def _rows(field: str, order: Sequence[str]) -> alt.Y:
    return alt.Y(
        f"{field}:N", title=None, sort=list(order), axis=alt.Axis(labelLimit=320, labelOverlap=False)
    )
