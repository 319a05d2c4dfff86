"""Offers downloads: the comparison, a container's series, what clients saw and a ranking of clusters as CSV,
the report as HTML.

For: the buttons and the bytes behind them. A file is made when its button is pressed. Not for: the content of
a comparison (lab.runs.compare) or a report (lab.runs.report).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from lab.charts.palette import Shown
from lab.explorer import cached, html
from lab.runs import formats
from lab.runs.compare import as_result
from lab.runs.report import document


def _button(place: Any, label: str, text: Callable[[], str], file: str, key: str) -> None:
    """Show a button for a file that is made when it is pressed. Pressing it does not redraw the page."""
    kind = "text/html" if file.endswith(".html") else "text/csv"
    place.download_button(
        label=label, data=text, file_name=file, mime=kind, on_click="ignore", key=f"download_{key}"
    )


def comparison_csv(runs: Sequence[Shown]) -> str:
    """Return one line per run with every digit, as `twinbed compare --format csv` writes it."""
    return formats.csv(as_result([look.run for look in runs]))


def series_csv(runs: Sequence[Shown], container: str) -> str:
    """Return every period of one container under every run. Columns: run, policy, then those of
    series.container."""
    frames = []
    for look in runs:
        if container in look.run.manifest["workload"]["containers"]:
            frame = cached.container(look.run, container)
            frame.insert(0, "policy", look.run.policy)
            frame.insert(0, "run", look.run.id)
            frames.append(frame)
    return pd.concat(frames).to_csv(index=False)


def whole(runs: Sequence[Shown]) -> None:
    """Show buttons for the comparison and the report. Pressing one does not redraw the page."""
    name = runs[0].run.manifest["name"]
    row = st.container(horizontal=True)
    _button(row, "Comparison (CSV)", lambda: comparison_csv(runs), f"{name}-comparison.csv", "comparison")
    _button(
        row, "Report (HTML)", lambda: document([look.run for look in runs]), f"{name}-report.html", "report"
    )


def series(runs: Sequence[Shown], container: str) -> None:
    """Show a button for every period of one container, not thinned."""
    name = f"{runs[0].run.manifest['name']}-{container}.csv".replace("/", "-")
    _button(
        st, f"Series of {html.markdown(container)} (CSV)", lambda: series_csv(runs, container), name, "series"
    )


def clients(runs: Sequence[Shown], frames: Mapping[str, pd.DataFrame]) -> None:
    """Show a button for what clients saw over time, as drawn. frames: title → services.over_time."""
    name = f"{runs[0].run.manifest['name']}-over-time.csv"
    _button(st, "Over time (CSV)", lambda: clients_csv(runs, frames), name, "clients")


def clients_csv(runs: Sequence[Shown], frames: Mapping[str, pd.DataFrame]) -> str:
    """Return the clients' figures in every stretch of every run. Columns: run, policy, then those of
    services.over_time."""
    parts = [
        frames[look.title].assign(run=look.run.id, policy=look.run.policy).set_index(["run", "policy"])
        for look in runs
    ]
    return pd.concat(parts).to_csv()


def ranking(frame: pd.DataFrame, job: str) -> None:
    """Show a button for a ranking of clusters with every digit, as `twinbed recommend --format csv`
    writes it."""
    name = f"{job}-ranking.csv"
    _button(st, "Ranking (CSV)", lambda: frame.to_csv(index=False), name, "ranking")


def trials(frame: pd.DataFrame, job: str) -> None:
    """Show a button for the trials of a search with every digit."""
    _button(st, "Trials (CSV)", lambda: frame.to_csv(index=False), f"{job}-trials.csv", "trials")
