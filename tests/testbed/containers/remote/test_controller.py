"""The controller's clocks: when it decides, and when it rests."""

from __future__ import annotations

import asyncio

import pytest

from control.allocator import make
from testbed.containers.remote.controller import Controller
from tests.testbed.containers.remote.cluster import deployment

LONGEST_S = 1.0


@pytest.mark.parametrize(("took_s", "rest_s"), [(0.001, 0.004), (0.1, 0.4), (60.0, LONGEST_S)])
async def test_deciding_rests_in_proportion_and_a_pause_does_not_hold_orders_back(
    monkeypatch: pytest.MonkeyPatch, took_s: float, rest_s: float
) -> None:
    loop, now_s = asyncio.get_running_loop(), 1000.0

    def stand_still() -> None:
        nonlocal now_s
        now_s += took_s

    controller = Controller(deployment(), make("escra", {}), pytest.fail)
    monkeypatch.setattr(controller, "_decide", stand_still)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "time", lambda: now_s)
        controller._flush()
    assert controller._rested_s - now_s == pytest.approx(rest_s)
