"""The machine's OOM kills, by which the loop knows when to look at its containers'."""

from __future__ import annotations

from pathlib import Path

from testbed.containers.cgroup.meter import AnyOomKills


def test_a_kill_is_told_of_twice_so_that_the_groups_own_counter_has_time_to_follow(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("drop_slab 0\noom_kill 3\nnuma 1\n")
    kills = AnyOomKills(file)
    assert [kills.lately() for _ in range(4)] == [True, True, False, False]
    file.write_text("drop_slab 0\noom_kill 4\nnuma 1\n")
    assert [kills.lately() for _ in range(4)] == [True, True, False, False]
    kills.close()


def test_where_kills_are_not_counted_there_may_always_be_one(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("drop_slab 0\n")
    kills = AnyOomKills(file)
    assert [kills.lately() for _ in range(4)] == [True] * 4
    kills.close()
