"""The changes of an apply, when it takes them back, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lab.containers.advise.model import Setting
from lab.containers.apply.carrying import Source, Watched, steps_of
from lab.containers.apply.conditions import parse
from lab.containers.apply.journal import Journal
from lab.containers.apply.plan import Change
from tests.lab.containers.apply.apply_world import FOUND, MIB, WANTED, World, advice, row
from tests.testbed.containers.fake_cgroups import CPU_STAT
from twinbed import BackendError

BOTH = advice(row("a"), row("b"))


@pytest.fixture(params=[1, 2])
def world(tmp_path, request):
    return World(tmp_path / "world", version=request.param)


class Clock:
    """Time that passes when somebody waits. at: second → what happens then."""

    def __init__(self, at=None) -> None:
        self.now_s, self._at = 0.0, dict(at or {})

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        for due_s in [due_s for due_s in self._at if due_s <= self.now_s]:
            self._at.pop(due_s)()


def audit(world: World) -> list[dict]:
    return [json.loads(line) for line in (world.state / "audit.jsonl").read_text().splitlines()]


def count(world: World, name: str, periods: int, throttled: int) -> None:
    stat = CPU_STAT.format(usage=0).replace("periods 7", f"periods {periods}")
    (world.cpu / "pods" / name / "cpu.stat").write_text(
        stat.replace("throttled 3", f"throttled {throttled}", 1)
    )


def kill_one(world: World, name: str) -> None:
    file = {1: "memory.oom_control", 2: "memory.events"}[world.version]
    path = world.memory / "pods" / name / file
    path.write_text(path.read_text().replace("oom_kill 0", "oom_kill 1"))


def test_an_advice_is_in_force_and_taken_back(world):
    before = world.values("a")
    assert before == FOUND[world.version]
    assert world.apply(BOTH) is None
    assert world.values("a") == world.values("b") == WANTED
    assert world.undo().done == 4
    assert world.values("a") == world.values("b") == before
    assert world.undo() is None


def test_every_change_is_in_the_audit_file_with_its_reason_and_its_advice(world):
    world.apply(BOTH)
    world.undo()
    said = audit(world)
    assert [line["what"] for line in said] == ["begin", *["set"] * 4, "end", *["put back"] * 4]
    first = said[1]
    assert (first["container"], first["row"], first["after"]) == ("/pods/a", "a", 0.5)
    assert first["why"] == "It was as fast with less."
    assert {line["sha256"] for line in said} == {"f" * 64}


def test_two_applies_are_taken_back_one_after_the_other(world):
    world.apply(BOTH)
    world.apply(advice(row("a", advised=Setting(cpu_limit_cores=1.5))))
    assert world.values("a") == (1.5, 64 * MIB)
    world.undo()
    assert world.values("a") == WANTED
    world.undo()
    assert world.values("a") == FOUND[world.version]


def test_what_somebody_else_set_meanwhile_is_left_alone(world):
    world.apply(BOTH)
    target = world.host().target("/pods/a")
    target.set("memory_limit_bytes", 32 * MIB)
    back = world.undo()
    assert world.values("a") == (FOUND[world.version][0], 32 * MIB)
    assert "set by others; left unchanged" in back.notes[0]
    assert [line["container"] for line in audit(world) if line["what"] == "leave"] == ["/pods/a"]


def test_a_second_apply_at_the_same_time_is_refused(world):
    with Journal(world.state).held(), pytest.raises(BackendError, match=r"applies an advice now"):
        world.apply(BOTH)
    assert world.values("a") == FOUND[world.version]


# --- watching ----------------------------------------------------------------------------------------


def test_a_canary_that_is_throttled_takes_everything_back(world):
    clock = Clock({3: lambda: count(world, "a", 107, 50)})
    watched = Watched(0.5, 10.0, (parse("throttled > 5%"),))
    why = world.apply(BOTH, watched, clock)
    assert why is not None
    assert why.startswith("/pods/a: throttled in 47.0 % of 100 periods, more than 5 %")
    assert clock.now_s == 3
    assert world.values("a") == world.values("b") == FOUND[world.version]
    # The other container was never touched.
    assert [line["container"] for line in audit(world) if line["what"] == "set"] == ["/pods/a"] * 2
    assert Journal(world.state).newest() is None


def test_the_rest_is_watched_too(world):
    clock = Clock({13: lambda: kill_one(world, "b")})
    why = world.apply(BOTH, Watched(0.5, 10.0, (parse("oom > 0"),)), clock)
    assert why == "/pods/b: processes killed for lack of memory: 1, more than 0"
    assert world.values("a") == world.values("b") == FOUND[world.version]


def test_what_somebody_else_set_meanwhile_is_named_when_the_rest_is_taken_back(world):
    def set_by_hand() -> None:
        world.host().target("/pods/a").set("cpu_limit_cores", 0.3)

    applier = world.applier(Clock({2: set_by_hand, 3: lambda: kill_one(world, "b")}))
    watched = Watched(1.0, 10.0, (parse("oom > 0"),))
    with Journal(world.state).held():
        assert applier.apply(world.plan(BOTH), Source("advice.json", "f" * 64), watched) is not None
    assert applier.back.worded == "taken back, the rest is as it was"
    assert "/pods/a: cpu_limit_cores is 0.3 now, set by others" in applier.back.notes[0]
    assert world.values("a")[0] == 0.3


def test_a_quiet_watch_leaves_the_changes_in_force(world):
    clock = Clock()
    watched = Watched(0.5, 5.0, (parse("oom > 0"), parse("throttled > 5%"), parse("restarts > 0")))
    assert world.apply(BOTH, watched, clock) is None
    assert clock.now_s == 10
    assert world.values("a") == world.values("b") == WANTED


def restart(world: World, name: str) -> None:
    """Its cgroup is made anew, with the limits that it had at first."""
    for directory in {world.cpu / "pods" / name, world.memory / "pods" / name}:
        directory.rename(directory.with_name(f"old-{name}"))
    world.make(name)
    for directory in {world.cpu / "pods" / name, world.memory / "pods" / name}:
        shutil.rmtree(directory.with_name(f"old-{name}"))


def test_a_container_that_restarts_is_limited_again_and_counted(world):
    clock = Clock({2: lambda: restart(world, "a")})
    assert world.apply(BOTH, Watched(1.0, 5.0, (parse("restarts > 1"),)), clock) is None
    assert world.values("a") == WANTED
    assert "was restarted" in [line["why"] for line in audit(world) if line["what"] == "set"][-1]
    world.undo()
    clock = Clock({2: lambda: restart(world, "a")})
    why = world.apply(BOTH, Watched(1.0, 5.0, (parse("restarts > 0"),)), clock)
    assert why == "/pods/a: restarts: 1, more than 0"
    assert world.values("a") == FOUND[world.version]


def test_restarts_of_both_watches_count_together(world):
    clock = Clock({2: lambda: restart(world, "a"), 7: lambda: restart(world, "a")})
    why = world.apply(BOTH, Watched(0.5, 5.0, (parse("restarts > 1"),)), clock)
    assert why == "/pods/a: restarts: 2, more than 1"
    assert world.values("a") == FOUND[world.version]


def test_a_container_that_vanishes_ends_the_watch(world):
    def vanish() -> None:
        for directory in {world.cpu / "pods/a", world.memory / "pods/a"}:
            shutil.rmtree(directory)

    clock = Clock({2: vanish})
    assert world.apply(BOTH, Watched(1.0, 60.0), clock) == "/pods/a is gone"
    assert clock.now_s == 17
    assert world.values("b") == FOUND[world.version]


def test_ctrl_c_takes_everything_back(world):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.apply(BOTH, Watched(1.0, 60.0), Clock({2: interrupt}))
    assert world.values("a") == world.values("b") == FOUND[world.version]
    assert Journal(world.state).newest() is None


def test_a_write_that_is_refused_takes_the_others_back(world, monkeypatch):
    write = Path.write_text

    def refuse(path: Path, text: str, **more):
        if "/pods/b/" in str(path) and text.startswith(str(64 * MIB)):
            raise OSError(22, "Invalid argument")
        return write(path, text, **more)

    monkeypatch.setattr(Path, "write_text", refuse)
    said = r"pods/b/memory.*Invalid argument.*; taken back, everything is as it was$"
    with pytest.raises(BackendError, match=said):
        world.apply(BOTH)
    assert world.values("a") == world.values("b") == FOUND[world.version]


# --- order and room ----------------------------------------------------------------------------------


def change(row_name: str, target: str, found: float, wanted: float) -> Change:
    return Change(row_name, target, "cpu_limit_cores", found, wanted, "")


def test_cuts_come_before_raises_and_canaries_are_of_every_row():
    changes = [change("r", f"r{i}", 1.0, 2.0) for i in range(4)] + [change("s", "s0", 2.0, 1.0)]
    first, rest = steps_of(changes, 0.4)
    assert [each.target for each in first] == ["s0", "r0"]
    assert [each.target for each in rest] == ["r1", "r2", "r3"]
    assert len(steps_of(changes, 1.0)) == 1
    assert steps_of([], 0.2) == []


def test_memory_is_never_planned_below_what_is_used(world):
    world.make("a", used=60 * MIB)
    planned = world.plan(BOTH)
    assert {each.row for each in planned.refused} == {"a"}
    assert "a: /pods/a needs at least 76 MiB now" in planned.refused[0].refused
    world.apply(BOTH)
    assert world.values("a") == FOUND[world.version]
    assert world.values("b") == WANTED


def test_memory_that_grew_since_the_plan_takes_everything_back(world):
    planned = world.plan(BOTH)
    world.make("b", used=60 * MIB)
    with Journal(world.state).held(), pytest.raises(BackendError, match="/pods/b: its memory grew"):
        world.applier().apply(planned, Source("advice.json", "f" * 64), Watched())
    assert world.values("a") == FOUND[world.version]
