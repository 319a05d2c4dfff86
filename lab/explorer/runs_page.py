"""Draws the page "Runs": list the store, compare several runs, download one as a zip file, delete.

For: this page. Not for: the store (lab.runs.store) or the comparison (lab.explorer.results).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from lab.charts.palette import shown, title
from lab.containers.kind import Containers
from lab.containers.metrics import METRICS
from lab.explorer import html, questions, results, running, sections, services_results, session
from lab.explorer.selection import MAX_POLICIES
from lab.runs.compare import kind_of
from lab.runs.formats import ABSENT
from lab.runs.store import Run, RunStore
from lab.runs.upkeep import remove
from twinbed import StoreError
from twinbed.text import counted

_COLUMNS = ("mean_reserved_cores", "throttled_share", "lateness_p99_s", "oom_kills", "restarts", "cost")


def page() -> None:
    """Draw the page."""
    running.take_finished()
    store = RunStore()
    sections.title("Runs", "Which runs are stored here, and how do they compare?")
    running.show()
    is_new = "runs_text" not in st.session_state
    if notice := st.session_state.pop("runs_notice", ""):
        st.success(html.markdown(notice))
    stored = store.list()
    _damaged(stored)
    healthy = stored[stored["problem"] == ""].reset_index(drop=True)
    if healthy.empty:
        st.markdown("Nothing is stored yet: make a run on the page **Containers**, or with `twinbed whatif`.")
        return
    matching = _filtered(healthy)
    asked = dict.fromkeys(st.query_params.get_all("runs") or st.session_state.get("runs_ticked", []))
    stored_ids, listed_ids = set(healthy["id"]), set(matching["id"])
    ticked = [run_id for run_id in asked if run_id in stored_ids]
    hidden = [run_id for run_id in ticked if run_id not in listed_ids]
    st.caption(
        f"{len(matching)} of {counted(len(healthy), 'run')} in {html.markdown(str(store.root))}. "
        "Tick several to compare them."
        + (f" Not listed: {counted(len(hidden), 'ticked run')}." if hidden else "")
    )
    if len(ticked) < len(asked) and is_new:
        gone = len(asked) - len(ticked)
        st.warning(f"The address names {counted(gone, 'run')} that this store does not have.")
    picked = [*hidden, *_table(matching, ticked)]
    st.session_state["runs_ticked"] = picked
    session.write_address({"runs": picked} if picked else {})
    if picked:
        _actions(store, picked)
        _compare(store, picked)


def _damaged(stored: pd.DataFrame) -> None:
    for _, row in stored[stored["problem"] != ""].iterrows():
        st.warning(html.markdown(f"{row['id']}: {row['problem']}"))


def _filtered(runs: pd.DataFrame) -> pd.DataFrame:
    text, names = st.columns([3, 2])
    wanted = text.text_input("Name or id contains", key="runs_text", bind="query-params").strip().lower()
    kinds = runs["policy"].str.split(":").str[0]
    chosen = names.multiselect(
        "Policy", sorted(kinds.unique()), format_func=title, key="runs_policies", bind="query-params"
    )
    inside = runs["id"].str.lower().str.contains(wanted, regex=False)
    return runs[inside & (kinds.isin(chosen) if chosen else True)].reset_index(drop=True)


def _table(matching: pd.DataFrame, ticked: Collection[str]) -> list[str]:
    """Show the runs, the newest first. Returns the ids of the ticked ones. ticked: those of the address."""
    # Runs of other kinds lack the containers' figures.
    columns = [column for column in _COLUMNS if column in matching and matching[column].notna().any()]
    currencies = sorted(set(matching["currency"][matching["cost"].notna()])) if "cost" in columns else []
    columns += ["currency"] * (len(currencies) > 1)
    frame = matching[["name", "policy", "seed", "created_at", *columns, "id"]].assign(
        created_at=pd.to_datetime(matching["created_at"]), policy=matching["policy"].map(title)
    )
    config = {
        "name": st.column_config.TextColumn("Name"),
        "policy": st.column_config.TextColumn("Policy"),
        "seed": st.column_config.NumberColumn("Seed"),
        "created_at": st.column_config.DatetimeColumn("Made at (UTC)", format="YYYY-MM-DD HH:mm:ss"),
        "currency": st.column_config.TextColumn("Currency"),
        "id": st.column_config.TextColumn("Run id"),
    }
    for metric in METRICS:
        if metric.key in _COLUMNS:
            share = metric.key.endswith("_share")
            unit = "/".join(currencies) if metric.unit == "currency" else metric.unit
            config[metric.key] = st.column_config.NumberColumn(
                metric.title + (f" ({unit})" if unit not in ("", "1") else ""),
                format="percent" if share else f"%.{metric.decimals}f",
                help=metric.definition,
            )
    rows_ticked = [row for row, run_id in enumerate(matching["id"]) if run_id in ticked]
    # Ticks are places of rows, so other rows make another table. It begins with the ticks of the address.
    rows_sha256 = hashlib.sha256("\n".join(matching["id"]).encode()).hexdigest()
    event = st.dataframe(
        frame,
        placeholder=ABSENT,
        hide_index=True,
        column_config=config,
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": rows_ticked}},
        key=f"runs_table_{rows_sha256[:16]}",
        height=min(420, 36 * (len(frame) + 1) + 3),
    )
    rows: list[int] = event["selection"]["rows"]
    return [str(matching["id"].iloc[row]) for row in rows if row < len(matching)]


def _actions(store: RunStore, picked: list[str]) -> None:
    row = st.container(horizontal=True)
    row.download_button(
        f"Export {counted(len(picked), 'run')} (zip)",
        partial(_zipped, store, picked),
        f"{picked[0]}.zip" if len(picked) == 1 else "twinbed-runs.zip",
        "application/zip",
        on_click="ignore",
        key="export",
    )
    if row.button(f"Delete {counted(len(picked), 'run')}…", key="delete"):
        _confirm(store, picked)


@st.dialog("Delete runs")
def _confirm(store: RunStore, picked: list[str]) -> None:
    runs = counted(len(picked), "run")
    st.markdown(html.markdown(f"Delete {runs} from {store.root}? This cannot be undone."))
    st.code("\n".join(picked), language=None)
    if st.button(f"Delete {counted(len(picked), 'run')}", type="primary", key="delete_confirmed"):
        try:
            remove(store, picked)
        except StoreError as error:
            st.error(html.markdown(str(error)))
            return
        questions.stored.clear()
        st.session_state["runs_notice"] = f"Deleted {runs}."
        st.rerun()


def _zipped(store: RunStore, picked: list[str]) -> bytes:
    """Return one archive with a folder per run."""
    with tempfile.TemporaryDirectory(prefix="twinbed-export-") as folder:
        root = Path(folder) / "runs"
        root.mkdir()
        for run_id in picked:
            store.export(run_id, root / run_id)
        return Path(shutil.make_archive(str(Path(folder) / "runs"), "zip", root)).read_bytes()


def _compare(store: RunStore, picked: list[str]) -> None:
    if len(picked) > MAX_POLICIES:
        st.info(f"{len(picked)} runs are ticked; the first {MAX_POLICIES:d} are compared.")
    runs = []
    for run_id in picked[:MAX_POLICIES]:
        try:
            runs.append(store.open(run_id))
        except StoreError as error:
            st.error(html.markdown(str(error)))
    if any(not isinstance(run.kind, Containers) for run in runs):
        _as_reported(runs)
    elif runs and all("requests" in run.tables for run in runs):
        services_results.show(runs)
    elif runs:
        results.show(runs)


def _as_reported(runs: list[Run]) -> None:
    """Show runs of another kind than containers as their report does. Raise StoreError for several kinds."""
    kind = kind_of(runs)
    questions.side_by_side(shown(runs), kind.metrics())
    for number, figure in enumerate(kind.charts(runs)):
        questions.draw(figure, f"runs-{number}")
