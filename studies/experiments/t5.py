"""T5: RDMA sends through one fault. For: the definition. Source: section 3.5.4, figure 3.8."""

from __future__ import annotations

from studies.experiments.fabric_assumptions import ACK_2_18, ACK_2_20, EDGE, LINK, SIGNAL
from studies.experiments.measures import Pick, change, mean, scaled
from studies.experiments.model import Experiment, Figure, Measure

_FAULT, _NONE = {"fabric.faults.kind": "single"}, {"fabric.faults.kind": "none"}
_THORN = Pick("thorn", _FAULT)


def _changed(share: str) -> Measure:
    return change(f"latency_{share}_s", _THORN, Pick("thorn", _NONE))


T5 = Experiment(
    name="T5",
    title="RDMA sends of 2^23 bytes through one fault",
    scenario="T5.yaml",
    method=(
        "ib_send_lat between two hosts: 1,000 messages there and back (perftest's default), local ACK "
        "timeout 2^14 (its default, too), percentiles as it prints them; the fault, in the middle, is of the "
        "port that the messages there take. One fault against none, both with THORN."
    ),
    figures=(
        Figure("p99", "Latency p99, one fault against none", "%", 2, _changed("p99")),
        Figure("p999", "Latency p99.9, one fault against none", "%", 0, _changed("p999")),
        Figure("longest_ms", "Longest latency", "ms", 1, scaled(1000, mean("latency_max_s", _THORN))),
        Figure("gap_ms", "Packets lost for", "ms", 1, scaled(1000, mean("gap_max_s", _THORN))),
        Figure("late", "Messages delayed", "1", 1, mean("late_messages", _THORN)),
        Figure(
            "software",
            "Latency p50 without faults, THORN in software against offloaded",
            "%",
            0,
            change("latency_p50_s", Pick("thorn-software", _NONE), Pick("thorn", _NONE)),
        ),
        Figure("failed_bond", "Queue pairs lost with a bond", "1", 1, mean("failed", Pick("bond", _FAULT))),
        Figure(
            "failed_none", "Queue pairs lost without a scheme", "1", 1, mean("failed", Pick("none", _FAULT))
        ),
    ),
    discussion=(
        "Sends follow one another, so a fault meets exactly one of them: p99 cannot move, and p99.9 of "
        "1,000 is that one. It follows from the protocol alone. How long that one takes follows from the "
        "whole ACK timeouts that fit into the time without a path; as printed it is half of a round, as "
        "ib_send_lat does. Where the path is lost for longer than the retries last (BFD 3×300 ms at 2^14, a "
        "bond, no scheme) the queue pair is in error and the series ends.",
    ),
    sensitivity=(*EDGE, ACK_2_18, ACK_2_20, *LINK, SIGNAL),
    sensitivity_part=("policies=[thorn]",),
)
