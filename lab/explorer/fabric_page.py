"""The page "Fabric": break a link, see each step of the failover, and the cost of BFD's timers.

For: this page. Not for: jobs and fleets (lab.explorer.fabric_jobs), the fault's events (twin.fabric.timeline)
or the charts (lab.charts.fabric). One fault takes some milliseconds, so the server computes it itself, and it
is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import streamlit as st

from control.fabric import BfdTimers, FaultKind, PlannedFault
from lab.charts import fabric as charts
from lab.charts.palette import title
from lab.charts.words import duration
from lab.explorer import fabric_jobs, html, questions, running, sections
from lab.explorer.fabric_jobs import JOBS
from lab.explorer.html import Card
from lab.explorer.sections import section
from lab.fabric import nccl
from lab.fabric.calibrate.retries import RetryProfile, retry_profile
from lab.fabric.calibrate.values import Fabric, fabric, load_calibration
from twin.fabric.bfd import false_downs_per_hour
from twin.fabric.failover import gap_samples
from twin.fabric.model import Handling, Scheme, Topology
from twin.fabric.rdma import Link, stall_s
from twin.fabric.retransmission import ladder
from twin.fabric.timeline import timeline, with_queue_pairs
from twin.fabric.topology import dual_tor
from twinbed import ScenarioError

_BEFORE_S = 1.0
"""Time for which sessions run before the fault, s."""
_DOWN_S = 5.0
_MOST_HOSTS = 16.0
_HIGHEST = 700
"""Height of the longest table, px: the steps of most faults without scrolling."""
_FAULT = "fault"
_SCHEMES = (Scheme.THORN, Scheme.THORN_SOFTWARE, Scheme.BOND, Scheme.REROUTE)
"""Schemes under which a job has more than one path."""
_CHOSEN, _OTHER = "#1A7FC4", "#7F8790"
_SAMPLES = 400
_INTERVALS_S = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True, slots=True)
class _Chosen:
    scheme: Scheme
    topology: Topology
    fault: PlannedFault
    fabric: Fabric


def page() -> None:
    """Draw the page."""
    running.take_finished()
    with st.sidebar:
        asked = st.selectbox(
            "Question", [_FAULT, *JOBS], format_func=_titled, key="fabric_ask", bind="query-params"
        )
        if asked in JOBS:
            fabric_jobs.ask(asked)
        else:
            chosen = _choose()
    sections.title("Fabric", "How long is traffic lost when a link breaks, and what does it cost a job?")
    running.show()
    if asked in JOBS:
        fabric_jobs.show(asked)
        return
    _schemes(chosen)
    _timeline(chosen)
    _timers(chosen)
    _ladder()


def _titled(asked: str) -> str:
    return JOBS.get(asked, "One fault of a link")


def _choose() -> _Chosen:
    def number(label: str, least: float, most: float, usual: float, key: str) -> int:
        return int(questions.number(label, least, most, usual, key, whole=True))

    # A browser may send any number, whatever its widget allows.
    def slider(label: str, least: int, most: int, usual: int, step: int, key: str) -> int:
        entered = st.slider(label, least, most, usual, step, key=key, bind="query-params")
        return min(most, max(least, entered))

    picked = st.selectbox("Scheme", _SCHEMES, format_func=title, key="fabric_scheme", bind="query-params")
    scheme = picked if picked in _SCHEMES else _SCHEMES[0]
    hosts = number("Hosts", 2.0, _MOST_HOSTS, 4.0, "fabric_hosts")
    host = number("Host at the fault", 0.0, hosts - 1.0, 0.0, "fabric_host")
    uplink = number("Its uplink", 0.0, 1.0, 0.0, "fabric_uplink")
    silent = st.checkbox(
        "Silent: the link keeps its carrier", value=True, key="fabric_silent", bind="query-params"
    )
    usual = fabric(load_calibration(), {})
    interval_ms = slider(
        "BFD interval (ms)", 10, 300, round(1000 * usual.timers.interval_s), 5, "fabric_interval"
    )
    multiplier = slider("BFD multiplier", 2, 10, usual.timers.multiplier, 1, "fabric_multiplier")
    hold_ms = slider("BGP hold (ms)", 0, 200, round(1000 * usual.control.hold_s), 5, "fabric_hold")
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


def _schemes(chosen: _Chosen) -> None:
    """Show the cost of the fault under each scheme, the chosen one first."""
    order = [chosen.scheme, *(scheme for scheme in _SCHEMES if scheme is not chosen.scheme)]
    st.html(html.cards_of([_card(scheme, chosen) for scheme in order]))
    queue_pair = chosen.fabric.queue_pair
    st.caption(
        html.markdown(
            f"Medians of {_SAMPLES:d} such faults, each {_DOWN_S:g} s long. RDMA: a busy queue pair with an "
            f"ACK timeout of {duration(queue_pair.ack_timeout_s)} and a ConnectX-6's retransmissions "
            "(cx6-20.43)."
        )
    )
    section("Where the fault is")
    st.altair_chart(charts.edge(*_drawn(chosen.topology, chosen.fault)))


def _card(scheme: Scheme, chosen: _Chosen) -> Card:
    calibrated = chosen.fabric
    gaps = gap_samples(
        calibrated.handling(scheme), chosen.fault.silent, _SAMPLES, np.random.SeedSequence(0), down_s=_DOWN_S
    )
    out_s, in_s = (float(gap_s) for gap_s in np.median(gaps, axis=0))
    resumed_s = float(stall_s(calibrated.queue_pair, max(out_s, in_s), Link(calibrated.rate_bps)))
    return Card(
        _CHOSEN if scheme is chosen.scheme else _OTHER,
        title(scheme),
        duration(max(out_s, in_s)),
        "without packets",
        "the chosen scheme" if scheme is chosen.scheme else "",
        [
            ("Packets from the host lost for", duration(out_s)),
            ("Packets to the host lost for", duration(in_s)),
            (
                "RDMA sends again after",
                duration(resumed_s) if np.isfinite(resumed_s) else "never: it gives up",
            ),
        ],
    )


def _timeline(chosen: _Chosen) -> None:
    calibrated = chosen.fabric
    handling, seed = calibrated.handling(chosen.scheme), np.random.SeedSequence(0)
    story = timeline(chosen.topology, chosen.fault, handling, seed)
    story = with_queue_pairs(story, chosen.fault, calibrated.queue_pair, rate_bps=calibrated.rate_bps)
    rows = pd.DataFrame(
        {
            "time (ms)": [f"{1000 * (at_s - chosen.fault.at_s):,.1f}" for at_s in story.at_s],
            "step": [str(step) for step in story.step],
            "where": story.where,
            "what": story.what,
        }
    )
    section("What happens after the fault")
    # A phone has room for the last column only if its lines are wrapped: st.table does so.
    with st.container(height=_HIGHEST, border=False):
        st.table(rows, hide_index=True)
    st.caption(html.markdown(f"One fault under {title(chosen.scheme)}, step by step, in ms after its begin."))


def _timers(chosen: _Chosen) -> None:
    """Show the two costs of BFD's timers: long ones lose more packets, short ones take down healthy
    sessions."""
    section("BFD's two sides")
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
        "Left: median gap at silent faults, in the worse direction. Right: healthy sessions that stalls of "
        "the machine bring down; the stalls were measured on the testbed."
    )


def _ladder() -> None:
    """Show when queue pairs send again after a loss and when they give up, by adapter and NCCL version."""
    section("When a queue pair sends again")
    adapters = list(RetryProfile)
    adapter = st.selectbox(
        "Adapter",
        adapters,
        index=adapters.index(RetryProfile.CX6_20_43),
        key="fabric_adapter",
        bind="query-params",
    )
    profile = retry_profile(adapter, load_calibration().values)
    rows: list[dict[str, object]] = []
    for version, (timeout, retries) in nccl.queue_pairs().items():
        try:
            steps = ladder(profile, timeout, retries)
        except ScenarioError as error:
            st.caption(html.markdown(f"NCCL from {version}: {error}"))
            continue
        name = f"{version}: {timeout}, {retries}"
        rows += [{"nccl": name, "at_s": at_s, "what": "sends again"} for at_s in steps.rungs_s]
        rows.append({"nccl": name, "at_s": steps.error_s, "what": "gives up"})
    if rows:
        st.altair_chart(charts.ladders(pd.DataFrame(rows)))
        st.caption(
            "The queue pair goes on with the first retransmission after the fault's end. It gives up if the "
            "fault outlasts all of them. Rows: the version of NCCL from which these defaults hold, the queue "
            "pair's timeout, and its retries."
        )
