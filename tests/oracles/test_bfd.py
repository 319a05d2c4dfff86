"""BFD's timers against FRRouting's: spacing of packets, detection times, and the slow interval."""

import numpy as np
import pytest

from control.fabric import BfdTimers, Direction
from tests.oracles.vectors import vectors
from twin.fabric.bfd import SLOW_INTERVAL_S, detection_s, spacing
from twin.fabric.sessions import bfd_pace


@vectors("bfd/timers")
def test_timers_are_frrouting_s(vector):
    expected = vector["expected"]
    match vector["what"]:
        case "spacing":
            assert spacing(vector["multiplier"]) == (expected["least"], expected["greatest"])
        case "detection":
            timers = BfdTimers(vector["interval_s"], vector["multiplier"])
            assert timers.detection_s == pytest.approx(expected["detection_s"])
            # Silence counts from the last packet, so a fault is noticed no later than that after its begin.
            noticed_s = detection_s(timers, 1000, np.random.default_rng(0))
            assert noticed_s.shape == (1000, len(Direction))
            assert expected["detection_s"] - timers.interval_s <= noticed_s.min()
            assert noticed_s.max() <= expected["detection_s"]
        case "detection_asymmetric":
            remote = BfdTimers(vector["remote"]["transmit_s"], vector["remote"]["multiplier"])
            counted = remote.received_at_least(vector["own"]["receive_s"])
            assert counted.detection_s == pytest.approx(expected["detection_s"])
        case "slow":
            assert expected["slow_interval_s"] == SLOW_INTERVAL_S
            assert bfd_pace(BfdTimers(0.05, 3)).slow_s == SLOW_INTERVAL_S
        case what:
            pytest.fail(f"{what}: no such kind of vector is known here")
