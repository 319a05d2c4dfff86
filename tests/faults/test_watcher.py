"""The watcher of the campaign sees a sum above Ω, and what it excepts is bounded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults.fault_world import ViolationError
from tests.faults.running_hosts import BYTES, CORES, Episode, Verb
from tests.faults.watcher import Limits, Watcher, check

CPU, MEMORY = 0, 1


def limits(east: float, west: float) -> Limits:
    """Return limits of one container per host, with these shares of Ω."""
    return {
        host: {f"busy-{host}": (share * CORES, share * BYTES)}
        for host, share in (("east", east), ("west", west))
    }


@pytest.mark.parametrize("index", [CPU, MEMORY])
def test_a_sum_above_the_limit_is_a_violation(index: int) -> None:
    assert check(limits(0.5, 0.5), (), index) == pytest.approx(1.0)
    with pytest.raises(ViolationError, match="east, west add up to"):
        check(limits(0.6, 0.5), (), index)


@pytest.mark.parametrize("index", [CPU, MEMORY])
def test_an_absent_host_excepts_its_own_limits_and_no_more(index: int) -> None:
    assert check(limits(1.0, 0.5), {"west"}, index) == pytest.approx(1.5)
    with pytest.raises(ViolationError, match="limits of east add up"):
        check(limits(1.1, 0.5), {"west"}, index)
    with pytest.raises(ViolationError, match="limits of west add up"):
        check(limits(0.5, 1.1), {"west"}, index)


def test_a_container_without_a_limit_is_a_violation() -> None:
    with pytest.raises(ViolationError):
        check(limits(float("inf"), 0.0), (), CPU)


def verb(path: Path, text: str) -> Verb:
    path.write_text(text)
    return Verb(cast(Any, None), path)


def settle(watcher: Watcher, lasts_s: float) -> None:
    """Read every 0.1 s for lasts_s seconds."""
    for _ in range(round(10 * lasts_s)):
        watcher._settle(0.1)


def test_the_log_says_who_is_absent_until_all_are_back_and_the_faults_are_over(tmp_path: Path) -> None:
    running = Episode(cast(Any, None), verb(tmp_path / "1.log", "… agent east is there, 2 cores\n"))
    watcher = Watcher(running)
    running.controller = verb(
        tmp_path / "2.log",
        "INFO agent east is there, 2 cores\nWARNING begins without agent west: its containers do not count\n",
    )
    watcher._read_log()
    assert watcher.absent == {"west"}
    watcher.over = True
    settle(watcher, 100.0)
    assert watcher.absent == {"west"}
    with running.controller.log.open("a") as log:
        log.write("INFO agent west is there, 2 cores\n")
    watcher._read_log()
    settle(watcher, 4.5)
    assert watcher.absent == {"west"}
    # The machine stands still.
    watcher._settle(100.0)
    assert watcher.absent == {"west"}
    settle(watcher, 1.0)
    assert watcher.absent == set()


def test_a_watcher_that_cannot_read_says_so(tmp_path: Path) -> None:
    running = Episode(cast(Any, None), verb(tmp_path / "1.log", ""))
    watcher = Watcher(running)
    running.controller.log.unlink()
    watcher.start()
    watcher.join()
    with pytest.raises(ViolationError, match="nobody watches any more"):
        watcher.check()
