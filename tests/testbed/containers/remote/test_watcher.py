"""Cgroups that come and go below a watched directory."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from testbed.containers.attach.finding import Found
from testbed.containers.ports import GroupGoneError
from testbed.containers.remote.origin import Origin, Watcher
from twinbed import BackendError


def test_what_matches_appears_once_and_vanishes_once(tmp_path: Path) -> None:
    parent = tmp_path / "kubepods" / "burstable"
    parent.mkdir(parents=True)
    (parent / "pod1").mkdir()
    (parent / "other").mkdir()
    (parent / "pod-file").write_text("")
    (parent / "pod-link").symlink_to(tmp_path)
    watcher = Watcher(tmp_path)
    first = watcher.begin([("/kubepods/burstable", "pod*"), ("/not/there", "*")])
    assert first == [Origin("1:pod1", attach={"": "/kubepods/burstable/pod1"}, watch=1)]
    assert watcher.look() == ([], set())
    (parent / "pod2").mkdir()
    (parent / "pod1").rmdir()
    appeared, vanished = watcher.look()
    assert [each.name for each in appeared] == ["1:pod2"]
    assert vanished == {"1:pod1"}
    assert watcher.look() == ([], set())


def test_an_engine_that_does_not_answer_says_nothing_of_its_containers(tmp_path: Path) -> None:
    """Docker's restart lets containers run on, so their limits stay in force."""
    answers = True

    def find(name: str) -> list[Found]:
        if not answers:
            raise BackendError("docker.sock: does not answer")
        return [Found(name, {"": "/docker/0123"}, "monday")]

    watcher = Watcher(tmp_path, find)
    web = watcher.begin([("docker:web", "*")])
    answers = False
    assert watcher.look() == ([], set())
    assert Watcher(tmp_path, find).begin([("docker:web", "*")], former=web) == web
    answers = True
    assert watcher.look() == ([], set())


def test_a_directory_that_cannot_be_listed_says_nothing_of_its_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent may have run out of open files."""
    (tmp_path / "docker" / "abc").mkdir(parents=True)
    watcher = Watcher(tmp_path)
    first = watcher.begin([("/docker", "*"), ("/pods", "*")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        assert watcher.look() == watcher.look() == ([], set())
        assert Watcher(tmp_path).begin([("/docker", "*")], former=first) == first
    assert watcher.look() == ([], set())
    assert caplog.messages == [
        f"{parent}: cannot be listed (Too many open files); its containers count as unchanged"
        for parent in ("/docker", "/pods", "/docker")
    ], "once by each"
    (tmp_path / "docker" / "abc").rmdir()
    assert watcher.look() == ([], {"1:abc"})


def refused(_path: Path) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_watched_directory_may_come_later_and_go(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    assert watcher.begin([("/docker", "*")]) == []
    (tmp_path / "docker" / "abc").mkdir(parents=True)
    assert [each.name for each in watcher.look()[0]] == ["1:abc"]
    shutil.rmtree(tmp_path / "docker")
    assert watcher.look() == ([], {"1:abc"})


def test_a_directory_that_was_made_anew_between_two_looks_vanished_and_appeared(tmp_path: Path) -> None:
    (tmp_path / "docker" / "abc").mkdir(parents=True)
    watcher = Watcher(tmp_path)
    watcher.begin([("/docker", "*")])
    (tmp_path / "docker" / "new").mkdir()
    (tmp_path / "docker" / "abc").rmdir()
    (tmp_path / "docker" / "new").rename(tmp_path / "docker" / "abc")
    appeared, vanished = watcher.look()
    assert [each.name for each in appeared] == ["1:abc"]
    assert vanished == {"1:abc"}


def test_containers_of_a_name_join_leave_and_come_back_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = {"docker:web": "monday"}

    def find(name: str) -> list[Found]:
        assert name == "docker:web"
        if not here:
            raise GroupGoneError("docker:web: no such container runs here")
        return [Found(each, {"": f"/docker/{each}"}, started) for each, started in here.items()]

    watcher = Watcher(tmp_path, find)
    first = watcher.begin([("docker:web", "*")])
    assert first == [Origin("1:docker:web", attach={"": "/docker/docker:web"}, watch=1)]
    assert watcher.look() == ([], set())
    here["docker:web"] = "tuesday"
    assert watcher.look() == (first, {"1:docker:web"})
    del here["docker:web"]
    assert watcher.look() == ([], {"1:docker:web"})
    assert watcher.look() == ([], set())
    assert [record.message for record in caplog.records] == ["docker:web: no such container runs here"]
    here["docker:web"] = "friday"
    assert watcher.look() == (first, set())
