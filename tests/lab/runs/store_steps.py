"""The steps of a process that uses a store, before which tests kill the process."""

from __future__ import annotations

import fcntl
import os
import pathlib

import lab.runs.store as store_module
from lab import kinds
from lab.runs.store import RunStore
from tests.lab.runs.test_run_store import manifest, tables

kinds.of_manifest(manifest())  # imports what a store imports late, once and not in every process
RUN = "mine-escra-0123456789"
PLACES = (
    *((os, name) for name in ("mkdir", "open", "fsync", "rename", "unlink", "rmdir", "close")),
    (fcntl, "flock"),
    (pathlib.Path, "open"),
    (store_module.publishing.pq, "write_table"),
    (store_module.publishing, "sha256_of"),
)


def publish(root: str) -> None:
    RunStore(root).publish(manifest(RUN), tables(9))


def remove(root: str) -> None:
    RunStore(root).remove(RUN)


def sweep(root: str) -> None:
    RunStore(root)
