"""The controller's clocks: when it decides, and when it rests."""

from __future__ import annotations

import asyncio

import pytest

from control.allocator import make
from testbed.containers.remote.controller import Controller
from tests.testbed.containers.remote.cluster import deployment

LONGEST_S = 1.0


def test_a_pause_in_the_middle_of_a_decision_does_not_hold_orders_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def decide() -> float:
        loop = asyncio.get_running_loop()
        clock, paused_s = loop.time, 0.0

        def stand_still() -> None:
            nonlocal paused_s
            paused_s = 60.0

        monkeypatch.setattr(loop, "time", lambda: clock() + paused_s)
        controller = Controller(deployment(), make("escra", {}), pytest.fail)
        monkeypatch.setattr(controller, "_decide", stand_still)
        controller._flush()
        return controller._rested_s - loop.time()

    assert asyncio.run(decide()) <= LONGEST_S
