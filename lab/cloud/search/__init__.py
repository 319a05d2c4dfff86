"""Closed-loop searches: propose a cluster, launch the job on it, measure, propose again."""

from __future__ import annotations

from enum import StrEnum


class Backend(StrEnum):
    """The backend that runs trials."""

    TESTBED = "testbed"
    TWIN = "twin"
    GCLOUD = "gcloud"
