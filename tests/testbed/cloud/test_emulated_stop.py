"""Stopping emulated instances, where the machine does not let them go at once."""

from types import SimpleNamespace

import pytest

from testbed.cloud import provisioner
from testbed.cloud.provisioner import EmulatedInstances, _Life
from twinbed import BackendError


class Stuck:
    """A cluster that cannot be removed the first time. Its second exit has nothing left to do."""

    exits = 0

    def __exit__(self, *_):
        self.exits += 1
        if self.exits == 1:
            raise BackendError("a process does not die")


def test_what_could_not_be_removed_is_held_until_it_is(monkeypatch):
    stuck, swept = [True], []

    def sweep(driver):
        swept.append(driver)
        if stuck:
            raise BackendError("a process does not die yet")

    monkeypatch.setattr(provisioner, "detect", lambda: "driver")
    monkeypatch.setattr(provisioner.leftovers, "sweep", sweep)
    order = SimpleNamespace(owner="me", token="t", lease_s=1e9, names=lambda: ("one",))
    instances = EmulatedInstances(cores=1.0)
    instances._life = _Life(order, Stuck(), 0.0)
    for message in ("does not die", "does not die yet"):
        with pytest.raises(BackendError, match=message):
            instances.stop("me", "t")
        assert [held.name for held in instances.held("me")] == ["one"]
    stuck.clear()
    instances.stop("me", "t")
    assert instances.held("me") == ()
    assert swept == ["driver", "driver"]
