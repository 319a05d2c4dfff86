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

from lab import kinds
from lab.charts.palette import shown, title
from lab.containers.kind import Containers
from lab.explorer import html, questions, results, running, sections, services_results, session
from lab.explorer.selection import MAX_POLICIES
from lab.runs.compare import kind_of
from lab.runs.formats import ABSENT
from lab.runs.store import Run, RunStore
from lab.runs.upkeep import remove
from twinbed import StoreError
from twinbed.text import counted

_COLUMNS = {
    "containers": (
        "mean_reserved_cores", "throttled_share", "lateness_p99_s", "oom_kills", "restarts", "cost",
    ),
    "fabric": (
        "gap_p50_s", "gap_max_s", "job_s", "bus_bandwidth_mean_gbps", "effective_share", "lost_cost",
    ),
    "cluster": ("jct_mean_s", "jct_p99_s", "waiting_mean_s", "rho_mean", "utilisation", "cost_usd"),
    "cloud": ("cost_usd", "over_optimum", "finish_h", "late", "lost_h", "revocations"),
}  # fmt: skip
"""Metrics that the table shows of runs of a kind, by its name."""
_TITLES = {"cloud": "Market"}
"""Names of kinds whose page has another name."""


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
    matching = _filtered(healthy.assign(kind=_kinds(healthy)))
    asked = dict.fromkeys(st.query_params.get_all("runs") or st.session_state.get("runs_ticked", []))
    stored_ids, listed_ids = set(healthy["id"]), set(matching["id"])
    ticked = [run_id for run_id in asked if run_id in stored_ids]
    hidden = [run_id for run_id in ticked if run_id not in listed_ids]
    st.caption(
        f"{len(matching)} of {counted(len(healthy), 'run')} in {html.markdown(str(store.root))}. "
        "Tick several to compare them."
        + (" Choose one kind to see its figures." if matching["kind"].nunique() > 1 else "")
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


def _kinds(runs: pd.DataFrame) -> pd.Series:
    """Return the name of each run's kind: the one that has most of the run's metrics."""
    known = {
        kind.name: runs.reindex(columns=[metric.key for metric in kind.metrics()]).notna().sum(axis=1)
        for kind in kinds.KINDS
    }
    return pd.DataFrame(known).idxmax(axis=1)


def _kind_title(name: str) -> str:
    return _TITLES.get(name, name.capitalize())


def _filtered(runs: pd.DataFrame) -> pd.DataFrame:
    text, sorts, names = st.columns([3, 2, 2])
    wanted = text.text_input("Name or id contains", key="runs_text", bind="query-params").strip().lower()
    sort = sorts.multiselect(
        "Kind", sorted(runs["kind"].unique()), format_func=_kind_title, key="runs_kinds", bind="query-params"
    )
    runs = runs[runs["kind"].isin(sort)] if sort else runs
    policies = runs["policy"].str.split(":").str[0]
    chosen = names.multiselect(
        "Policy", sorted(policies.unique()), format_func=title, key="runs_policies", bind="query-params"
    )
    inside = runs["id"].str.lower().str.contains(wanted, regex=False)
    return runs[inside & (policies.isin(chosen) if chosen else True)].reset_index(drop=True)


def _table(matching: pd.DataFrame, ticked: Collection[str]) -> list[str]:
    """Show the runs, the newest first. Returns the ids of the ticked ones. ticked: those of the address."""
    listed = matching["kind"].unique()
    own = next((kind for kind in kinds.KINDS if list(listed) == [kind.name]), None)
    metrics = {metric.key: metric for metric in own.metrics()} if own else {}
    wanted = _COLUMNS.get(own.name, tuple(metrics)[:6]) if own else ()
    columns = [key for key in wanted if key in matching and matching[key].notna().any()]
    currencies = sorted(set(matching["currency"][matching["cost"].notna()])) if "cost" in columns else []
    columns += ["currency"] * (len(currencies) > 1)
    about = ["name", *(["kind"] if len(listed) > 1 else []), "policy", "seed", "created_at"]
    frame = matching[[*about, *columns, "id"]].assign(
        created_at=pd.to_datetime(matching["created_at"]), policy=matching["policy"].map(title)
    )
    if len(listed) > 1:
        frame["kind"] = frame["kind"].map(_kind_title)
    config = {
        "name": st.column_config.TextColumn("Name"),
        "kind": st.column_config.TextColumn("Kind"),
        "policy": st.column_config.TextColumn("Policy"),
        "seed": st.column_config.NumberColumn("Seed"),
        "created_at": st.column_config.DatetimeColumn("Made at (UTC)", format="YYYY-MM-DD HH:mm:ss"),
        "currency": st.column_config.TextColumn("Currency"),
        "id": st.column_config.TextColumn("Run id"),
    }
    for key in columns:
        if (metric := metrics.get(key)) is not None:
            unit = "/".join(currencies) if metric.unit == "currency" else metric.unit
            config[key] = st.column_config.NumberColumn(
                metric.title + (f" ({unit})" if unit not in ("", "1") else ""),
                format="percent" if key.endswith("_share") else f"%.{metric.decimals}f",
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
