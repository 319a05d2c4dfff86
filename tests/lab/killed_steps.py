"""Ends a process with SIGKILL before the n-th of the steps in which it changes files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock


def killed_before(step: int, work: Callable[[str], object], root: str | Path) -> bool:
    """Do the work in a process of its own; return whether it was killed, or had fewer steps and ended.

    The steps are calls of the functions in PLACES of the module of `work`: (owner, name).
    """
    process = multiprocessing.get_context("forkserver").Process(target=_child, args=(step, work, str(root)))
    with mock.patch.object(forkserver, "connect_to_new_process", _server(work.__module__)):
        process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0


@cache
def _server(module: str) -> Callable[..., Any]:
    """Return what forks a process that has imported the module.

    The server that all share may be up already, without it: each process would import it anew.
    """
    server = forkserver.ForkServer()
    server.set_forkserver_preload([module])
    return server.connect_to_new_process


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

    for owner, name in sys.modules[work.__module__].PLACES:
        setattr(owner, name, counted(getattr(owner, name)))
    # The library takes the original functions of `os` as a sign of what the system can do.
    shutil._use_fd_functions = True  # type: ignore[attr-defined]
    work(root)
    os._exit(0)
