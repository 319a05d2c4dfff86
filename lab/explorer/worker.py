"""Simulates for the explorer in a child process: `python -m lab.explorer.worker`.

For: one request (a JSON line on standard input), its runs into the store, and its progress as JSON lines on
standard output. Not for: starting or watching it (lab.explorer.job). It ends, and leaves nothing
half-written, on SIGTERM and when its standard input closes, which means that the explorer died.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self, TextIO, TypeVar

from lab.ask.scenario import Scenario, build, expand
from lab.explorer import limits
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from twinbed import TwinbedError, own

_MOST_OFTEN_S = 0.1


class _CancelledError(BaseException):
    """SIGTERM as an exception, so that the store tidies up. No `except Exception` may catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyRequest:
    """A page's request to a child process.

    module: the module whose `carry_out` executes it.
    folder: holds uploads and is removed at the end, "" for none.
    memory_bytes: most memory that the child may write to, bytes.
    """

    module: ClassVar[str]
    folder: str = ""
    memory_bytes: int = field(default_factory=lambda: limits.shared().memory_bytes)

    def to_json(self) -> str:
        """Return the request as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Return the request that `to_json` wrote."""
        return cls(**json.loads(line))


Asked = TypeVar("Asked", bound=AnyRequest)


@dataclass(frozen=True, slots=True)
class Request(AnyRequest):
    """The request to a worker.

    scenario: plain data for lab.ask.scenario.build. Paths in it are relative to `folder` if that is given.
    store: root of the run store.
    """

    module: ClassVar[str] = "lab.explorer.worker"
    scenario: dict[str, Any]
    store: str

    @classmethod
    def of(cls, scenario: Scenario, store: Path, folder: str = "") -> Request:
        """Return the request for all runs of a scenario."""
        return cls(scenario.model_dump(mode="json", exclude_unset=True), str(store.absolute()), folder=folder)


class Channel:
    """Sends messages to the explorer, one JSON object per line. Any other output goes to stderr."""

    def __init__(self) -> None:
        self._out: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._sent_s = -_MOST_OFTEN_S

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def reached(self, label: str, fraction: float) -> None:
        """Send the present label and the finished share of the request, not more often than needed."""
        if fraction < 1 and time.monotonic() - self._sent_s < _MOST_OFTEN_S:
            return
        self._sent_s = time.monotonic()
        self.send(label=label, fraction=fraction)


def carry_out(read: Callable[[str], Asked], work: Callable[[Asked, Channel], dict[str, Any]]) -> int:
    """Read a request, work in its folder, and send the result. Returns 0 if there is one, 1 otherwise; a
    message gives the reason."""
    # Ctrl-C in the terminal reaches the explorer, which then ends its children in its own order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel()
    folder = ""
    try:
        signal.signal(signal.SIGTERM, _cancel)
        request = read(sys.stdin.readline())
        folder = request.folder
        threading.Thread(target=_watch_parent, daemon=True).start()
        limits.bound_memory(request.memory_bytes)
        if folder:
            # Messages and the manifest then contain the file's name instead of its temporary path.
            os.chdir(folder)
        with own.forbidden("your own code does not run in the explorer"):
            channel.send(**work(request, channel))
    except (_CancelledError, KeyboardInterrupt):
        # Work that tidies up by itself (testbed.containers.interrupts) makes SIGTERM raise
        # KeyboardInterrupt.
        return 1
    except TwinbedError as error:
        channel.send(error=" ".join(str(error).split()))
    except Exception as error:
        if isinstance(error, MemoryError) or limits.is_short_of_memory():
            channel.send(
                error=f"This needs more than the {request.memory_bytes / 1e9:.1f} GB that a run may have "
                "here: choose fewer containers or less time, or use the command line."
            )
        else:
            traceback.print_exc()
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            channel.send(error=f"twinbed failed, which is our bug: {what}")
    else:
        return 0
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return 1


def _run(request: Request, channel: Channel) -> dict[str, Any]:
    scenario = build(request.scenario, "explorer")
    labels = [spec.label for spec in expand(scenario)]

    def progress(label: str, fraction: float) -> None:
        channel.reached(label, (labels.index(label) + fraction) / len(labels))

    runs = run_scenario(scenario, RunStore(request.store), progress=progress)
    return {"runs": [run.id for run in runs]}


def _cancel(_signal: int, _frame: FrameType | None) -> None:
    raise _CancelledError


def _watch_parent() -> None:
    while sys.stdin.read(1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(carry_out(Request.from_json, _run))
