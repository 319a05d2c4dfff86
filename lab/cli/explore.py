"""`twinbed explore`: serves the explorer on this machine.

For: the verb's options. Not for: the server (lab.explorer.server) or its pages.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Annotated

import typer

from lab.cli.options import flag

_PACKAGES = ("streamlit", "altair", "vl_convert")


def explore(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on.")] = 8501,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at once, of all visitors. Default: all CPUs but one.")
    ] = None,
    memory_gb: Annotated[
        float | None,
        typer.Option(min=0, help="Memory of these runs together, GB. Default: half of the machine's."),
    ] = None,
    check: Annotated[
        bool, flag("--check", "Start the explorer, check that it answers, and stop it.")
    ] = False,
) -> None:
    """Open the explorer: charts, comparisons and questions in a browser. Only this machine can reach it."""
    from lab.explorer import limits, server
    from lab.runs.store import RunStore

    RunStore()  # It refuses what is no folder, as every page would.
    for variable, value in ((limits.WORKERS, workers), (limits.MEMORY_GB, memory_gb)):
        if value is not None:
            os.environ[variable] = str(value)
    limits.of(os.environ)
    for package in _PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
    address = f"http://127.0.0.1:{port}"
    if check:
        server.check(port)
        typer.echo(f"The explorer is healthy at {address}.")
        return
    typer.echo(f"The explorer is at {address}. Ctrl-C stops it.", err=True)
    server.serve(port)
