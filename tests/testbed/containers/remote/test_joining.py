"""Containers that agents report: which may join, and what counts as in force in them."""

from __future__ import annotations

import logging
import math

import pytest

from control.allocator.model import Application
from testbed.containers.remote.deployment import Deployment, Placed, Watch
from testbed.containers.remote.joining import Newcomers, in_force
from testbed.containers.remote.ledger import LARGE_BYTES, LARGE_CORES
from testbed.containers.remote.messages_pb2 import Present
from testbed.containers.remote.refusals import Refusals

NONE = (LARGE_CORES, LARGE_BYTES)


def test_only_what_the_deployment_has_may_join(caplog: pytest.LogCaptureFixture) -> None:
    applications = (Application("shop", 1.0, 1 << 30), Application("pods", 1.0, 1 << 30))
    placed = (Placed("web", "a0", 0, attach={"": "web"}), Placed("db", "a1", 0, attach={"": "db"}))
    watches = ("a0", 1, "/pods"), ("a0", 0, "/more"), ("a2", 1, "/pods")
    refusals = Refusals(logging.getLogger("tests.joining"))
    newcomers = Newcomers(
        Deployment(applications, placed, tuple(Watch(*watch, "*") for watch in watches)), refusals
    )
    bad = ["db", "1:x", "", "1:a\nb", "1:" + "y" * 299]
    for name in ("web", "db", "1:x"):
        newcomers.note("a0", Present(name=name))
    for name in ("1:x", "1:" + "y" * 298, *bad[2:]):
        newcomers.note("a0", Present(name=name, watch=1))
    newcomers.note("a0", Present(name="web", watch=3))
    newcomers.note("a0", Present(name="2:x", watch=2))
    newcomers.note("a1", Present(name="web"))
    newcomers.note("a1", Present(name="db"))
    newcomers.note("a2", Present(name="1:x", watch=1))
    assert refusals.counts == {"not deployed": len(bad) + 2}
    assert caplog.messages[0] == "refused, not deployed: container 'db' of agent a0"
    newcomers.forget("a1")
    assert newcomers
    taken = [(newcomer.present.name, newcomer.app) for newcomer in newcomers.take()]
    assert taken == [("web", 0), ("1:x", 1), ("1:" + "y" * 298, 1), ("2:x", 0), ("1:x", 1)]
    assert not newcomers
    assert newcomers.take() == []


@pytest.mark.parametrize(
    ("quota_cores", "limit_bytes", "counts"),
    [
        (0.0, 0, (0.0, 0)),
        (1.5, 1 << 30, (1.5, 1 << 30)),
        (LARGE_CORES - 1, LARGE_BYTES - 1, (LARGE_CORES - 1, LARGE_BYTES - 1)),
        (LARGE_CORES, LARGE_BYTES, NONE),
        (math.inf, 2**63 - 1, NONE),
        (math.nan, -1, NONE),
        (-1.0, -1, NONE),
    ],
)
def test_an_impossible_limit_counts_as_none(
    quota_cores: float, limit_bytes: int, counts: tuple[float, int]
) -> None:
    assert in_force(Present(quota_cores=quota_cores, limit_bytes=limit_bytes)) == counts
