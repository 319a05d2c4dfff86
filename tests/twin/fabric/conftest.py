from dataclasses import replace

import pytest

from control.fabric import BfdTimers
from twin.fabric.model import ControlPlane, Delay, Handling, Scheme, Stalls

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
