"""Cgroups that come and go below a watched directory."""

from __future__ import annotations

from pathlib import Path

from testbed.containers.remote.origin import Origin, Watcher


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


def test_a_watched_directory_may_come_later(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    assert watcher.begin([("/docker", "*")]) == []
    (tmp_path / "docker" / "abc").mkdir(parents=True)
    assert [each.name for each in watcher.look()[0]] == ["1:abc"]
