from dataclasses import replace

import numpy as np
import pytest

from control.fabric import BfdTimers, FaultKind, PlannedFault
from twin.fabric.model import NO_SPINE, ControlPlane, Delay, Flags, Handling, Scheme, Stalls, Topology

CONTROL = ControlPlane(
    carrier_s=Delay(0.002, 0.003),
    hold_s=0.05,
    message_s=Delay(0.001, 0.002),
    route_s=Delay(0.001, 0.002),
    rule_s=Delay(0.005, 0.01),
    session_up_s=Delay(1.8, 2.3),
    stalls=Stalls(per_s=0.04, floor_s=0.05, excess_s=0.04),
)


def constant(delay_s):
    return Delay(delay_s, delay_s)


@pytest.fixture
def control():
    return CONTROL


@pytest.fixture
def exact():
    """Every delay of the routing constant: only BFD's packets are left to chance."""
    return replace(
        CONTROL,
        carrier_s=constant(0.002),
        message_s=constant(0.003),
        route_s=constant(0.001),
        session_up_s=constant(2.0),
    )


@pytest.fixture
def thorn(exact):
    """THORN with constant delays and BFD at 3 × 50 ms."""
    return Handling(Scheme.THORN, exact, BfdTimers(0.05, 3))


def single(
    at_s: float, *, host: int = 0, uplink: int = 0, down_s: float = np.inf, silent: bool = True
) -> list[PlannedFault]:
    """Plan one fault of a port at at_s, which by default is never repaired."""
    return [PlannedFault(FaultKind.PORT, host=host, uplink=uplink, silent=silent, at_s=at_s, down_s=down_s)]


def flapping(times: int, at_s: float, down_s: float, up_s: float) -> list[PlannedFault]:
    """Plan `times` faults of one port, which is up for up_s between them."""
    return [single(at_s + turn * (down_s + up_s), down_s=down_s)[0] for turn in range(times)]


def reaches(topology: Topology, source: int, destination: int) -> Flags:
    """Return bool[U, U]: whether a path leads by the source's uplink (row) and the destination's uplink
    (column)."""
    same = topology.tor_of[source][:, None] == topology.tor_of[destination][None, :]
    return np.asarray(same | (topology.spines > NO_SPINE))
