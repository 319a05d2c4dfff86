"""E7: what Escra costs: network, CPU of the controller, time to change a limit. Source: section 2.6.9.

The sizes on the wire are those of the least protocol that would do, not of a measured one: a record of id
8 B, quota 4 B, unused runtime 4 B, period number 4 B and flags 4 B in a UDP datagram of its own (as the
source's per-container kernel threads send it), and a limit of id 8 B, quota 8 B and reason 8 B in a TCP
segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from studies.experiments.measures import Pick
from studies.experiments.model import Case, Change, Experiment, Figure

_ETHERNET_BYTES = 8 + 14 + 4 + 12
"""Preamble, header, checksum and the gap after a frame."""

RECORD_BYTES = 24 + 8 + 20 + _ETHERNET_BYTES
"""A record of one container and period with UDP and IPv4 headers: 90 bytes on the wire."""

LIMIT_BYTES = 24 + 20 + 20 + _ETHERNET_BYTES
"""A new limit with TCP and IPv4 headers: 102 bytes on the wire."""

_MEDIA = Pick("escra", {"services.app": "media_microservice"})
_TRAIN = Pick("escra", {"services.app": "train_ticket"})


def peak_mbit_s(case: Case) -> float:
    """Records and new limits in the busiest second of a run, Mbit/s."""
    frame = case.run.frame("periods", ["period", "cpu_reason", "up"])
    period_s = float(case.run.manifest["workload"]["period_s"])
    second = (frame["period"].to_numpy(np.int64) * period_s + 1e-9).astype(np.int64)
    records = np.bincount(second, frame["up"].to_numpy(np.float64))
    limits = np.bincount(second, frame["cpu_reason"].to_numpy() > 0)
    return float((records * RECORD_BYTES + limits * LIMIT_BYTES).max() * 8 / 1e6)


def _network(cases: Sequence[Case]) -> float:
    return max(peak_mbit_s(case) for case in _MEDIA.of(cases))


def _containers_per_core(cases: Sequence[Case]) -> float:
    (case,) = _TRAIN.of(cases)
    manifest = case.run.manifest
    per_record_s = manifest["decide_s"] / manifest["reports"] if manifest["reports"] else math.nan
    return float(manifest["workload"]["period_s"] / per_record_s)


def _limit_change_us(cases: Sequence[Case]) -> float:
    return float(cases[0].run.manifest["spec"]["machine"]["quota_write_delay_s"] * 1e6)


E7 = Experiment(
    name="E7",
    title="Overhead of Escra",
    scenario="E7.yaml",
    timed=True,
    method=(
        f"Network: records ({RECORD_BYTES} B each on the wire with UDP, IPv4 and Ethernet) and new limits "
        f"({LIMIT_BYTES} B) in the busiest second of MediaMicroservice (32 containers). Containers per core: "
        "period over the allocator's own time per record on TrainTicket (68 containers), on this machine. "
        "Time of a limit change: the quota write measured for the calibration, an input and no result."
    ),
    figures=(
        Figure("network_32_containers", "Peak network, 32 containers", "Mbit/s", 3, _network),
        Figure("containers_per_core", "Containers per core", "1", 0, _containers_per_core),
        Figure("limit_change", "Limit change in force after", "µs", 0, _limit_change_us),
    ),
    discussion=(
        "Network: 12.06 Mbit/s are 4.7 kB per container and period, fifty times what a record takes on "
        "the wire. More than telemetry must be in the source's figure: it calls its agents over HTTP/2 "
        "for every limit, and asks cAdvisor for the memory of every container.",
        "Containers per core: ours is the decision alone, in NumPy, over all containers that report "
        "together; it grows with their number (phases). The source's includes receiving datagrams and "
        "calling agents. It is a time, and changes from machine to machine and run to run.",
    ),
    sensitivity=(
        Change("period=50ms", ("period_s=0.05",)),
        Change("phases=1", ("services.phases=1",)),
        Change("phases=10", ("services.phases=10",)),
    ),
)
