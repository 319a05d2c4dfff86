"""Orders of instances: their names, and what is refused."""

from dataclasses import replace

import pytest

from control.jobs import InstanceType
from control.provisioner import Order, cannot_run
from twinbed import ScenarioError

KIND = InstanceType("small", "any", 2, 8)
ORDER = Order("mine", "first", KIND, workers=1, command=("train",), batch=1, lease_s=1.0)


def test_instances_are_named_by_owner_token_and_rank_and_the_server_is_last() -> None:
    assert ORDER.names() == ("mine-first-0",)
    two = replace(ORDER, workers=2, server=KIND)
    assert two.names() == ("mine-first-0", "mine-first-1", "mine-first-server")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"owner": "Mine"}, "'Mine': expected up to 40"),
        ({"token": "a" * 41}, "expected up to 40"),
        ({"workers": 0}, "0 workers, batch 1, lease 1 s: each is at least 1"),
        ({"batch": 0}, "1 workers, batch 0"),
        ({"lease_s": 0.5}, "lease 0.5 s"),
        ({"lease_s": float("nan")}, "lease nan s"),
    ],
)
def test_an_order_that_no_cloud_would_accept_is_refused(changed: dict, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        replace(ORDER, **changed)


def test_a_job_that_cannot_run_has_no_step_and_a_reason() -> None:
    reading = cannot_run(12.0, "out of memory")
    assert (reading.step_s.size, reading.held_s, reading.problem) == (0, 12.0, "out of memory")
