"""Ends a process with SIGKILL before the n-th of the steps in which it changes a store."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pathlib
import shutil
import signal
from collections.abc import Callable
from typing import Any

import lab.runs.store as store_module
from lab import kinds
from lab.runs.store import RunStore
from tests.lab.runs.test_run_store import manifest, tables

kinds.of_manifest(manifest())  # imports what a store imports late, once and not in every process
RUN = "mine-escra-0123456789"
_PLACES = (
    *((os, name) for name in ("mkdir", "open", "fsync", "rename", "unlink", "rmdir", "close")),
    (fcntl, "flock"),
    (pathlib.Path, "open"),
    (store_module.publishing.pq, "write_table"),
    (store_module.publishing, "sha256_of"),
)


def killed_before(step: int, work: Callable[[str], object], root: str) -> bool:
    """Do the work in a process of its own; return whether it was killed, or had fewer steps and ended."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_child, args=(step, work, root))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


def publish(root: str) -> None:
    RunStore(root).publish(manifest(RUN), tables(9))


def remove(root: str) -> None:
    RunStore(root).remove(RUN)


def sweep(root: str) -> None:
    RunStore(root)


def _child(step: int, work: Callable[[str], object], root: str) -> None:
    taken = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def step_by_step(*args: Any, **options: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **options)

        return step_by_step

    for owner, name in _PLACES:
        setattr(owner, name, counted(getattr(owner, name)))
    # It takes the functions of `os` as they were for a sign of what the system can do.
    shutil._use_fd_functions = True  # type: ignore[attr-defined]
    work(root)
    os._exit(0)
