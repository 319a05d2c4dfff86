"""The loop's priority ends with its block, whatever happens."""

from __future__ import annotations

import gc
import os

import pytest

from testbed.containers.host import priority


def test_an_interrupt_just_after_the_priority_was_raised_lowers_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    calls: list[str] = []
    monkeypatch.setattr(priority, "_raise_priority", lambda: "fifo")
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: calls.append("policy"))
    monkeypatch.setattr(os, "setpriority", lambda *_: calls.append("nice"))
    monkeypatch.setattr(gc, "collect", interrupted)
    with pytest.raises(KeyboardInterrupt), priority.urgent():
        raise AssertionError("it began")
    assert calls == ["policy", "nice"]
    assert gc.isenabled()
