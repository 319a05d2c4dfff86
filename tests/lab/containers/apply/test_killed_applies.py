"""An apply, an undo and a recovery that are killed before every step: nothing stays half done."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import shutil
from pathlib import Path

import pytest

from lab.containers.apply.journal import Journal
from tests.lab.containers.apply.apply_world import FOUND, WANTED, World, advice, row
from tests.lab.killed_steps import killed_before

BOTH = advice(row("a"), row("b"))
LEAST_STEPS = {"apply": 25, "undo": 15, "recover": 15}
"""Fewer would mean that the steps are not seen."""

PLACES = (
    *((os, name) for name in ("open", "write", "fsync", "replace", "unlink")),
    (pathlib.Path, "write_text"),
)


def opened(root: str) -> World:
    """The world that is there already, in another process."""
    world = World.__new__(World)
    world.folder, world.state, world.version = Path(root), Path(root) / "state", 1
    world.cpu, world.memory = Path(root) / "cgroup/cpu,cpuacct", Path(root) / "cgroup/memory"
    world.proc = Path(root) / "proc"
    return world


def apply(root: str) -> None:
    opened(root).apply(BOTH)


def undo(root: str) -> None:
    opened(root).undo()


def recover(root: str) -> None:
    world = opened(root)
    with Journal(world.state).held():
        world.applier().recover()


def limits(world: World) -> set[tuple[float, float]]:
    return {world.values("a"), world.values("b")}


@pytest.mark.slow
@pytest.mark.parametrize("work", [apply, undo, recover])
def test_wherever_it_is_killed_the_limits_are_all_new_or_all_old(tmp_path, work):
    root, seen = tmp_path / "world", set()
    for step in itertools.count(1):
        shutil.rmtree(root, ignore_errors=True)
        world = World(root)
        if work is not apply:
            world.apply(BOTH)
        if work is recover:
            journal = Journal(world.state)
            path = journal.newest()
            journal.save(path, journal.load(path).model_copy(update={"phase": "carrying"}))
        killed = killed_before(step, work, root)
        if killed and work is undo:
            # The next undo finishes what the killed undo left.
            world.undo()
        recover(str(root))
        assert limits(world) in ({FOUND[1]}, {WANTED}), step
        seen |= limits(world)
        journal = Journal(world.state)
        in_force = limits(world) == {WANTED}
        assert (journal.newest() is not None) == in_force, step
        audit = world.state / "audit.jsonl"
        for line in audit.read_text().splitlines() if audit.exists() else ():
            assert json.loads(line)["what"], step
        if not killed:
            break
    assert step > LEAST_STEPS[work.__name__]
    assert seen == ({FOUND[1], WANTED} if work is apply else {FOUND[1]})
