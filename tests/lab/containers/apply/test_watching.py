"""A watch of containers that restart at awkward moments."""

from __future__ import annotations

from types import SimpleNamespace

from lab.containers.apply.conditions import Happened, parse
from lab.containers.apply.watching import Watch
from testbed.containers.attach.limits import Counters
from testbed.containers.ports import GroupGoneError

GONE = GroupGoneError("docker:web: does not run")


class Places:
    """One container, which tells what a test gave it, or is gone."""

    def __init__(self, now: Counters | None) -> None:
        self.now = now

    def target(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(counters=self.counters)

    def counters(self) -> Counters:
        if self.now is None:
            raise GONE
        return self.now


def test_limits_are_set_again_until_a_restarted_container_takes_them() -> None:
    places = Places(Counters(10, 1, 0, 0, "first"))
    answers, asked = [GONE, None], []

    def again(name: str) -> None:
        asked.append(name)
        if (answer := answers.pop(0)) is not None:
            raise answer

    happened: dict[str, Happened] = {}
    watch = Watch(["web"], places, (parse("restarts > 1"),), again, happened)
    places.now = Counters(3, 2, 0, 0, "second")
    for second in range(4):
        assert watch.look(float(second), last=False) is None
    assert asked == ["web", "web"]
    assert happened["web"] == Happened(periods=3, throttled=2, oom=0, restarts=1)


def test_a_container_that_restarts_as_its_watch_begins_is_waited_for() -> None:
    places, asked = Places(None), []
    watch = Watch(["web"], places, (), asked.append, {})
    assert watch.look(0.0, last=False) is None
    places.now = Counters(5, 0, 0, 7, "second")
    assert watch.look(14.0, last=False) is None
    assert asked == ["web"]
    places.now = None
    assert watch.look(20.0, last=False) is None
    assert watch.look(35.0, last=False) == "web is gone"
