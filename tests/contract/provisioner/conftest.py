"""The backends that can run on this machine: virtual and the adapter always, emulated types only for root."""

from __future__ import annotations

import pytest

from tests.contract.provisioner.provisioner_backends import InCgroups, InGcloud, InTwin

BACKENDS = {"twin": InTwin, "gcloud": InGcloud, "emulated": InCgroups}
CANNOT = {("twin", "test_a_job_that_dies_is_a_reading_and_no_error"): "no job runs in virtual time"}
"""(backend, case) → why the backend cannot do it."""


@pytest.fixture(
    params=["twin", "gcloud", pytest.param("emulated", marks=(pytest.mark.root, pytest.mark.slow))]
)
def make(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes the backend, with a fault if the case asks for one."""
    reason = CANNOT.get((request.param, request.node.originalname))
    if reason is not None:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    if request.param == "emulated":
        from testbed.cloud import emulated

        request.getfixturevalue("cgroups")
        monkeypatch.setattr(emulated, "_tc", emulated._tc)  # what a backend counts with goes again
    return BACKENDS[request.param]
