"""Runs whose owner is dead, as a process leaves them that is killed."""

from __future__ import annotations

import secrets

from testbed.containers import ownership


def dead_run() -> str:
    """Return the name of a run whose lock is there, and held by nobody."""
    run = f"run-4194300-{secrets.token_hex(8)}"
    (ownership.make_directory(run) / ownership.LOCK).touch()
    return run
