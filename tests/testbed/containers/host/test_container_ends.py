"""Commands are ended in bounded time, even where a process does not die."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from testbed.containers.cgroup import tree
from testbed.containers.host import container
from testbed.containers.host.container import Container, ContainerSpec, last_words, stop
from testbed.containers.host.hosted import HostedContainer
from twinbed import BackendError


def test_a_process_that_does_not_die_does_not_keep_the_end_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []
    group = SimpleNamespace(send=signals.append, pids=lambda: {7})
    process = SimpleNamespace(poll=lambda: None, kill=lambda: None)
    stuck = Container(ContainerSpec("stuck", ("true",)), group, None, process=process)  # type: ignore[arg-type]
    monkeypatch.setattr(container, "TERMINATION_GRACE_S", 0.05)
    monkeypatch.setattr(tree, "REMOVAL_TIMEOUT_S", 0.2)
    ending = threading.Thread(target=stop, args=([stuck], lambda: False), daemon=True)
    ending.start()
    ending.join(20.0)
    assert not ending.is_alive()
    assert {15, 9} <= set(signals)


def test_the_last_words_are_those_of_the_first_log_that_has_any(tmp_path) -> None:
    assert last_words(tmp_path / "none") == last_words(tmp_path) == "it printed nothing"
    (tmp_path / "a.log").write_text("\n\n")
    (tmp_path / "b.log").write_bytes(b"begins\nno data \xff\n\n")
    (tmp_path / "c.log").write_text("others\n")
    assert last_words(tmp_path) == "no data \N{REPLACEMENT CHARACTER}"


def test_a_container_is_removed_though_its_bundle_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise BackendError("the bundle is stuck")

    done: list[str] = []
    group = SimpleNamespace(remove=lambda: done.append("group"))
    hosted = HostedContainer("a", None, group)  # type: ignore[arg-type]
    hosted.command = SimpleNamespace(end_at_once=lambda: done.append("command"), tidy=refuse)  # type: ignore[assignment]
    monkeypatch.setattr(hosted, "close_pidfd", lambda: done.append("pidfd"))
    monkeypatch.setattr(hosted, "unwatch", lambda: done.append("trap"))
    with pytest.raises(BackendError, match="the bundle is stuck"):
        hosted.remove()
    assert done == ["command", "pidfd", "group", "trap"]
