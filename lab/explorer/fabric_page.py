"""The page "Fabric": break a link, see what follows to the millisecond, and what BFD's timers cost.

For: this page. Not for: the fault's events (twin.fabric.timeline) or the charts (lab.charts.fabric). One
fault takes some milliseconds, so the server computes it itself, and it is not stored. Fleets take longer and
are shown from the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from control.fabric import BfdTimers, FaultKind, PlannedFault
from lab.charts import fabric as charts
from lab.explorer import html
from lab.fabric import nccl
from lab.fabric.calibrate.retries import RetryProfile, retry_profile
from lab.fabric.calibrate.values import Fabric, fabric, load_calibration
from lab.runs.store import RunStore
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.failover import gap_samples
from twin.fabric.model import Handling, Scheme, Topology
from twin.fabric.rdma import Link, stall_s
from twin.fabric.retransmission import ladder
from twin.fabric.timeline import timeline, with_queue_pairs
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError, StoreError

_BEFORE_S = 1.0
"""Time for which sessions run before the fault, s."""
_DOWN_S = 5.0
_MOST_HOSTS = 16
_SAMPLES = 400
_LOOK_AGAIN_S = 30.0
"""How long the list of stored fleets is kept, s: reading it opens every stored run."""
_INTERVALS_S = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True, slots=True)
class _Chosen:
    scheme: Scheme
    topology: Topology
    fault: PlannedFault
    fabric: Fabric


def page() -> None:
    """Draw the page."""
    st.title("Fabric", anchor=False)
    with st.sidebar:
        chosen = _choose()
    st.altair_chart(charts.edge(*_drawn(chosen.topology, chosen.fault)))
    _timeline(chosen)
    _timers(chosen)
    _ladder()
    _fleets()


def _choose() -> _Chosen:
    # A browser may send any number, whatever its widget allows.
    hosts = min(_MOST_HOSTS, int(st.number_input("Hosts", 2, _MOST_HOSTS, 4, key="fabric_hosts")))
    schemes = [Scheme.THORN, Scheme.THORN_SOFTWARE, Scheme.BOND, Scheme.REROUTE]
    scheme = st.selectbox("Scheme", schemes, key="fabric_scheme")
    host = int(st.number_input("Host at the fault", 0, hosts - 1, 0, key="fabric_host"))
    uplink = int(st.number_input("Its uplink", 0, 1, 0, key="fabric_uplink"))
    silent = st.checkbox("Silent: the link keeps its carrier", value=True, key="fabric_silent")
    usual = fabric(load_calibration(), {})
    interval_ms = st.slider(
        "BFD interval (ms)", 10, 300, round(1000 * usual.timers.interval_s), 5, key="fabric_interval"
    )
    multiplier = st.slider("BFD multiplier", 2, 10, usual.timers.multiplier, key="fabric_multiplier")
    hold_ms = st.slider("BGP hold (ms)", 0, 200, round(1000 * usual.control.hold_s), 5, key="fabric_hold")
    changed = replace(
        usual,
        timers=BfdTimers(interval_ms / 1000, multiplier),
        control=replace(usual.control, hold_s=hold_ms / 1000),
    )
    topology = dual_tor(hosts, rate_bps=usual.rate_bps, delay_s=usual.delay_s)
    fault = PlannedFault(
        FaultKind.PORT, host=host, uplink=uplink, silent=silent, at_s=_BEFORE_S, down_s=_DOWN_S
    )
    return _Chosen(scheme, topology, fault, changed)


def _drawn(topology: Topology, fault: PlannedFault) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return links and nodes with their places."""
    at = np.linspace(0.0, 1.0, topology.hosts)
    above = np.linspace(0.25, 0.75, topology.tors)
    links = [
        {
            "x": at[host],
            "y": 0.0,
            "x2": above[tor],
            "y2": 1.0,
            "state": "broken" if (host, uplink) == (fault.host, fault.uplink) else "works",
        }
        for (host, uplink), tor in np.ndenumerate(topology.tor_of)
    ]
    nodes = [{"x": x, "y": 0.0, "name": f"host {host}"} for host, x in enumerate(at)]
    nodes += [{"x": x, "y": 1.0, "name": f"ToR {tor}"} for tor, x in enumerate(above)]
    return pd.DataFrame(links), pd.DataFrame(nodes)


def _timeline(chosen: _Chosen) -> None:
    calibrated = chosen.fabric
    handling, seed = calibrated.handling(chosen.scheme), np.random.SeedSequence(0)
    story = timeline(chosen.topology, chosen.fault, handling, seed)
    story = with_queue_pairs(story, chosen.fault, calibrated.queue_pair, rate_bps=calibrated.rate_bps)
    rows = pd.DataFrame(
        {
            "ms after the fault": np.round(1000 * (story.at_s - chosen.fault.at_s), 1),
            "where": story.where,
            "step": [str(step) for step in story.step],
            "what": story.what,
        }
    )
    st.subheader("What follows", anchor=False)
    st.dataframe(rows, hide_index=True)
    gaps = gap_samples(handling, chosen.fault.silent, _SAMPLES, np.random.SeedSequence(0), down_s=_DOWN_S)
    out_s, in_s = np.median(gaps, axis=0)
    resumed_s = float(stall_s(calibrated.queue_pair, max(out_s, in_s), Link(calibrated.rate_bps)))
    again = f"sends again after {1000 * resumed_s:,.0f} ms" if np.isfinite(resumed_s) else "gives up"
    st.caption(
        f"Packets are lost for {1000 * out_s:,.0f} ms out of the host and {1000 * in_s:,.0f} ms towards it "
        f"(medians of {_SAMPLES:d} such faults, {_DOWN_S:g} s long). A busy queue pair with an ACK timeout "
        f"of {1000 * calibrated.queue_pair.ack_timeout_s:,.0f} ms and a ConnectX-6's retransmissions "
        f"(`cx6-20.43`) {html.markdown(again)}."
    )


def _timers(chosen: _Chosen) -> None:
    """Show the two costs of BFD's timers: long ones lose more packets, short ones take down healthy
    sessions."""
    st.subheader("BFD's two sides", anchor=False)
    if chosen.scheme not in (Scheme.THORN, Scheme.THORN_SOFTWARE):
        st.markdown("Only the overlay's routing uses BFD.")
        return
    control, timers = chosen.fabric.control, chosen.fabric.timers
    rows = []
    for interval_s in sorted({*_INTERVALS_S, timers.interval_s}):
        tried = replace(timers, interval_s=interval_s)
        handling = Handling(chosen.scheme, control, tried)
        gaps = gap_samples(handling, True, _SAMPLES, np.random.SeedSequence(0))
        sessions = chosen.topology.uplinks
        rows.append(
            {
                "detection_ms": 1000 * tried.detection_s,
                "gap_ms": 1000 * float(np.median(gaps.max(axis=1))),
                "false_downs_per_h": chosen.topology.hosts
                * false_downs_per_hour(tried, control.stalls, sessions),
                "chosen": interval_s == timers.interval_s,
            }
        )
    for place, panel in zip(st.columns(2), charts.two_sides(pd.DataFrame(rows)), strict=True):
        place.altair_chart(panel)
    st.caption(
        "Silent faults; median of the worse direction. Stalls of the machine are those measured on the "
        "testbed: see [stalls] in the calibration."
    )


def _ladder() -> None:
    """Show when queue pairs send again after a loss and when they give up, by adapter and NCCL version."""
    st.subheader("When a queue pair sends again", anchor=False)
    adapters = list(RetryProfile)
    adapter = st.selectbox(
        "Adapter", adapters, index=adapters.index(RetryProfile.CX6_20_43), key="fabric_adapter"
    )
    profile = retry_profile(adapter, load_calibration().values)
    rows: list[dict[str, object]] = []
    for version, (timeout, retries) in nccl.queue_pairs().items():
        try:
            steps = ladder(profile, timeout, retries)
        except ScenarioError as error:
            st.caption(html.markdown(f"NCCL from {version}: {error}"))
            continue
        name = f"from {version} (timeout {timeout}, {retries} retries)"
        rows += [{"nccl": name, "at_s": at_s, "what": "sends again"} for at_s in steps.rungs_s]
        rows.append({"nccl": name, "at_s": steps.error_s, "what": "gives up"})
    if rows:
        st.altair_chart(charts.ladders(pd.DataFrame(rows)))
        st.caption(
            "A fault that ends before a retransmission is survived then; one that outlasts them is not."
        )


def _fleets() -> None:
    """Show stored runs of whole fleets."""
    st.subheader("Fleets", anchor=False)
    rows = _fleet_rows(str(RunStore().root))
    if not rows:
        st.markdown("No fleet is stored yet. This command takes a few minutes:")
        st.code("twinbed run scenarios/fleet.yaml", language="sh")
        return
    for place, panel in zip(st.columns(2), charts.fleets(_beside_none(pd.DataFrame(rows))), strict=True):
        place.altair_chart(panel)


@st.cache_data(ttl=_LOOK_AGAIN_S, max_entries=2, show_spinner="Reading the stored runs")
def _fleet_rows(root: str) -> list[dict[str, Any]]:
    """Return a row per stored run of a fleet."""
    store = RunStore(root)
    rows = []
    for run_id in store.ids():
        try:
            run = store.open(run_id)
        except StoreError:
            continue  # It was removed in the meantime.
        if fleet := run.manifest["spec"].get("fabric", {}).get("fleet"):
            rows.append(
                {
                    "gpus": fleet["gpus"],
                    "scheme": run.policy,
                    "seed": run.manifest["seed"],
                    "days": fleet["days"],
                    "effective": run.metrics["effective_share"],
                    "lost_cost": run.metrics["lost_cost"],
                }
            )
    return rows


def _beside_none(frame: pd.DataFrame) -> pd.DataFrame:
    """Add what each run saved against no scheme: the same fleet, days and seed (mean, if run twice)."""
    same = ["gpus", "days", "seed"]
    alone = frame[frame["scheme"] == Scheme.NONE].groupby(same)["lost_cost"].mean().rename("alone")
    beside = frame.join(alone, on=same)
    saved = (beside["alone"] - beside["lost_cost"]).where(beside["scheme"] != Scheme.NONE)
    return beside.assign(saved_cost=saved)
