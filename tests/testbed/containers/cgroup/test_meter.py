"""Counters of a group, and those of the machine by which the loop knows when to look at its containers."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from testbed.containers.cgroup import meter
from testbed.containers.cgroup.meter import AnyOomKills, Meter, OomKills
from testbed.containers.ports import GroupGoneError
from tests.testbed.containers.fake_cgroups import FakeTree
from twinbed import BackendError


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


@pytest.mark.parametrize(("counter", "file"), [(Meter, "cpu.stat"), (OomKills, "memory.events")])
def test_a_group_that_goes_while_it_is_opened_leaves_no_file_open(
    tmp_path: Path, counter: type[Meter | OomKills], file: str
) -> None:
    FakeTree(tmp_path).group_v2(tmp_path / "g")
    # Like a file of a cgroup that is removed now, a directory can be opened and not read.
    (tmp_path / "g" / file).unlink()
    (tmp_path / "g" / file).mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(GroupGoneError):
        counter([tmp_path / "g"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [(errno.ENODEV, GroupGoneError, "the cgroup is gone"), (errno.EMFILE, BackendError, "ulimit -n")],
)
@pytest.mark.parametrize("counter", [Meter, OomKills])
def test_a_file_that_cannot_be_opened_is_an_error_of_ours_and_leaves_no_file_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    counter: type[Meter | OomKills],
    number: int,
    kind: type[BackendError],
    said: str,
) -> None:
    FakeTree(tmp_path).group_v2(tmp_path / "g")
    really = meter.open_file

    def refuse(path: Path, flags: int) -> int:
        if path.name.startswith("memory."):
            raise OSError(number, os.strerror(number))
        return really(path, flags)

    monkeypatch.setattr(meter, "open_file", refuse)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(kind, match=said):
        counter([tmp_path / "g"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
