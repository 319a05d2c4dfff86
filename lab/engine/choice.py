"""The engine that `--engine` names.

For: the verbs that distribute work. Not for: carrying it out.
"""

from __future__ import annotations

from lab.engine.local import Local, cores
from lab.engine.ports import Engine
from twinbed import ScenarioError

LOCAL = "local"
_SCHEMES = ("dask://", "tcp://", "tls://")


def engine(text: str, jobs: int | None = None) -> Engine:
    """Return the engine: `local`, `dask` (workers of this machine), or a scheduler's address.

    jobs: number of processes on this machine; by default one per CPU. Raises ScenarioError for another
    text, and ModuleNotFoundError if Dask is not installed.
    """
    if text == LOCAL:
        return Local(jobs or cores())
    address = text.removeprefix("dask://")
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if text != "dask" and not (text.startswith(_SCHEMES) and host and port.isdigit()):
        raise ScenarioError(f"--engine {text}: expected local, dask, dask://HOST:PORT, tcp://… or tls://…")
    from lab.engine.dask import Dask

    return Dask("" if text == "dask" else address, jobs or cores())


def distant(text: str, jobs: int | None = None) -> Engine | None:
    """Return the engine, or None for `local`, of which a kind says how many processes it usually has."""
    return None if text == LOCAL else engine(text, jobs)
