"""The notes of an agent's place, and what the next agent of that name finds, on cgroups made of plain
files."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from testbed.containers.cgroup.drivers import V1, V2, detect
from testbed.containers.ownership import MARK, lasting_run
from testbed.containers.ports import GroupGoneError
from testbed.containers.remote import place as places
from testbed.containers.remote.origin import Origin
from testbed.containers.remote.place import CgroupPlace, agents
from tests.testbed.containers.fake_cgroups import FakeTree
from twinbed import BackendError
from twinbed.ownership import take

ORIGINS = {
    "made": Origin("made", command=("sleep", "1"), environment={"A": "b"}),
    "attached": Origin("attached", attach={"": "/pods/x"}, watch=2),
}


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    made = FakeTree(tmp_path)
    made.unified("cpu memory")
    return made


@pytest.fixture
def driver(tree: FakeTree) -> V1 | V2:
    return detect(tree.proc)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that somebody holds is not waited for."""
    monkeypatch.setattr(places, "take", partial(take, patience_s=0.0))


@pytest.mark.usefixtures("impatient")
def test_the_next_agent_of_a_name_finds_what_was_noted(driver: V1 | V2, tmp_path: Path) -> None:
    state = tmp_path / "agents"
    first = CgroupPlace("web", driver, state)
    assert first.recall() == {}
    first.remember(ORIGINS.values())
    assert (state / "web").stat().st_mode & 0o777 == 0o700
    with pytest.raises(BackendError, match="an agent 'web' runs here already"):
        CgroupPlace("web", driver, state)
    CgroupPlace("db", driver, state).close()
    assert agents(state) == {lasting_run(name): state / name / places.LOCK for name in ("db", "web")}
    first.close()
    assert CgroupPlace("web", driver, state).recall() == ORIGINS


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"containers": 1}',
        '{"containers": [{"command": "x"}]}',
        '{"containers": [{"command": "x", "name": []}]}',
    ],
)
def test_damaged_notes_count_as_none(driver: V1 | V2, tmp_path: Path, text: str) -> None:
    place = CgroupPlace("web", driver, tmp_path / "agents")
    (tmp_path / "agents" / "web" / "containers.json").write_text(text)
    assert place.recall() == {}
    assert place.adopt("made") is None


def test_a_group_is_adopted_where_the_former_agent_had_made_it(
    driver: V1 | V2, tree: FakeTree, tmp_path: Path
) -> None:
    assert isinstance(driver, V2)
    place = CgroupPlace("web", driver, tmp_path / "agents")
    before = tmp_path / "elsewhere"
    group = before / MARK / lasting_run("web") / "made"
    tree.group_v2(group)
    assert place.adopt("made") is None
    place.remember([])
    notes = tmp_path / "agents" / "web" / "containers.json"
    assert json.loads(notes.read_text())["base"] == {"unified": str(driver.base)}
    notes.write_text(json.dumps({"base": {"unified": str(before)}, "containers": []}))
    adopted = place.adopt("made")
    assert adopted is not None
    assert adopted.directories == (group,)
    assert place.incarnation(adopted) == group.stat().st_ino
    assert place.adopt("other") is None
    assert place.root == driver.base
    shutil.rmtree(group)
    with pytest.raises(GroupGoneError, match="the cgroup is gone"):
        place.incarnation(adopted)


def test_with_separate_hierarchies_a_group_has_a_directory_in_each(tmp_path: Path) -> None:
    tree = FakeTree(tmp_path)
    driver = tree.driver_v1("web", 1 << 62)
    place = CgroupPlace("web", driver, tmp_path / "agents")
    place.remember([])
    made = {key: base / MARK / lasting_run("web") / "made" for key, base in driver.base.items()}
    tree.group_v1({key: folder for key, folder in made.items() if key != "memory"}, 0)
    assert place.adopt("made") is None
    tree.group_v1(made, 0)
    adopted = place.adopt("made")
    assert adopted is not None
    assert {*adopted.directories} == {*made.values()}
    assert place.root == driver.mount_of("cpu")


def test_groups_are_made_under_the_agents_own_run(
    driver: V1 | V2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(V2, "create", lambda _driver, run, name: (run, name))
    assert CgroupPlace("web", driver, tmp_path / "agents").create("made") == (lasting_run("web"), "made")


def test_a_former_container_is_removed_or_gets_its_limits_back(
    driver: V1 | V2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []

    def group(of: object) -> SimpleNamespace:
        return SimpleNamespace(remove=lambda: left.append(of))

    place = CgroupPlace("web", driver, tmp_path / "agents")
    monkeypatch.setattr(places, "attach", lambda paths, *of: group((paths, *of)))
    assert place.adopt("made") is None
    place.leave(ORIGINS["made"])
    assert left == []
    monkeypatch.setattr(place, "adopt", group)
    place.leave(ORIGINS["made"])
    place.leave(ORIGINS["attached"])
    place.leave(Origin("two", attach={"cpu": "/a", "memory": "/b"}))
    own = (driver, lasting_run("web"))
    assert left == ["made", ("/pods/x", *own), ({"cpu": "/a", "memory": "/b"}, *own)]

    def vanished(*_: object) -> None:
        raise GroupGoneError("x: the cgroup is gone")

    monkeypatch.setattr(places, "attach", vanished)
    place.leave(ORIGINS["attached"])


@pytest.mark.usefixtures("impatient")
def test_what_ended_agents_left_is_swept_and_living_ones_are_left_alone(
    driver: V1 | V2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(CgroupPlace, "leave", lambda _, origin: left.append(origin.name))
    monkeypatch.setattr(V2, "finish", lambda _, run: left.append(run))
    monkeypatch.setattr(places.oci, "remove_run", left.append)
    state = tmp_path / "agents"
    assert places.sweep(driver, state) == []
    living = CgroupPlace("web", driver, state)
    living.remember(ORIGINS.values())
    for name in ("db", "cache"):
        place = CgroupPlace(name, driver, state)
        place.remember([ORIGINS["made"], Origin(name, attach={"": name})])
        place.close()
    assert places.sweep(driver, state) == ["cache", "db"]
    runs = {name: lasting_run(name) for name in ("cache", "db")}
    assert left == [what for name, run in runs.items() for what in ("made", name, run, run)]
    assert [folder.name for folder in state.iterdir()] == ["web"]
    assert living.recall() == ORIGINS


def test_an_agent_whose_container_cannot_be_removed_does_not_keep_the_others(
    driver: V1 | V2, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = [True]
    left: list[str] = []

    def leave(_: CgroupPlace, origin: Origin) -> None:
        if origin.name == "cache" and stuck:
            raise BackendError("cache: cannot be removed")
        left.append(origin.name)

    monkeypatch.setattr(CgroupPlace, "leave", leave)
    monkeypatch.setattr(V2, "finish", lambda *_: None)
    state = tmp_path / "agents"
    for name in ("cache", "db"):
        place = CgroupPlace(name, driver, state)
        place.remember([Origin(name, ("sleep", "1")), Origin(f"{name}-2", ("sleep", "1"))])
        place.close()
    with pytest.raises(BackendError, match="cache: cannot be removed"):
        places.sweep(driver, state)
    assert left == ["cache-2", "db", "db-2"]
    assert [folder.name for folder in state.iterdir()] == ["cache"]
    stuck.clear()
    assert places.sweep(driver, state) == ["cache"]
