"""What every provisioner does (virtual, emulated or a real cloud's): it holds what was ordered, and no
more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from control.provisioner import State
from lab.cloud.search.held import nothing_left
from tests.contract.provisioner.provisioner_backends import DIES, OWNER, order
from twinbed import ScenarioError, TwinbedError


def test_what_is_launched_is_held_under_its_mark_until_it_is_stopped(make):
    backend = make()
    cloud = backend.provisioner
    assert cloud.held(OWNER) == ()
    with nothing_left(cloud, OWNER):
        names = cloud.launch(order())
        assert names == order().names()
        assert [(row.name, row.token) for row in cloud.held(OWNER)] == [(name, "t1") for name in names]
        assert set(cloud.status(order()).values()) == {State.RUNNING}
        assert cloud.held("somebody") == ()
        cloud.stop("somebody", "t1")
        cloud.stop(OWNER, "t2")
        assert len(cloud.held(OWNER)) == 2
    assert set(cloud.status(order()).values()) == {State.GONE}
    assert cloud.held(OWNER) == ()
    assert backend.billable() == 0


def test_a_second_launch_starts_nothing_and_a_second_stop_is_fine(make):
    backend = make()
    cloud = backend.provisioner
    with nothing_left(cloud, OWNER):
        first = cloud.launch(order())
        billable = backend.billable()
        assert cloud.launch(order()) == first
        assert backend.billable() == billable > 0
        cloud.stop(OWNER, "t1")
        cloud.stop(OWNER, "t1")
        assert backend.billable() == 0


def test_steps_are_measured_on_what_is_held(make):
    cloud = make().provisioner
    with nothing_left(cloud, OWNER):
        cloud.launch(order())
        reading = cloud.measure(order(), 5)
        assert reading.problem == ""
        assert len(reading.step_s) >= 5  # quick ones are measured over many periods of the quota
        assert (reading.step_s > 0).all()
        assert reading.held_s >= 0


def test_a_job_that_dies_is_a_reading_and_no_error(make):
    backend = make()
    backend.dies()
    with nothing_left(backend.provisioner, OWNER):
        backend.provisioner.launch(order(command=DIES))
        reading = backend.provisioner.measure(order(command=DIES), 5)
        assert "no data" in reading.problem
        assert not reading.step_s.size
    assert backend.billable() == 0


def test_a_lease_ends_though_nobody_stops_anything(make):
    backend = make()
    backend.provisioner.launch(order())
    backend.pass_time(599)
    assert len(backend.provisioner.held(OWNER)) == 2
    backend.pass_time(2)
    assert backend.provisioner.held(OWNER) == ()
    assert backend.billable() == 0


@pytest.mark.parametrize("late", [False, True], ids=["before its effect", "after its effect"])
def test_a_fault_at_any_inner_call_leaves_nothing_billable(make, late):
    def lives(fault_at):
        backend = make(fault_at, late=late)
        try:
            with nothing_left(backend.provisioner, OWNER):
                backend.provisioner.launch(order())
                backend.provisioner.measure(order(), 3)
                backend.provisioner.stop(OWNER, "t1")
        except TwinbedError:
            pass
        inner = backend.inner
        assert backend.billable() == 0, f"after a fault at inner call {fault_at}"
        assert backend.provisioner.held(OWNER) == ()
        return inner

    for fault_at in range(lives(None)):
        lives(fault_at)


def test_what_cannot_be_launched_is_refused_and_nothing_is_held(make):
    backend = make()
    cloud = backend.provisioner
    refused = replace(order(), server=order().kind)
    if cloud.refusal(refused):
        with pytest.raises(ScenarioError):
            cloud.launch(refused)
        assert backend.billable() == 0
