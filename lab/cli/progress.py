"""Shows a progress bar on standard error for work that takes longer than two seconds.

For: verbs that simulate or learn. Not for: standard output, which carries results only.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from twinbed.text import counted, printable

PATIENCE_S = 2.0
"""Time until the bar appears, s. Shorter work needs no bar."""

PREPARING = "preparing (the first time the twin is compiled too: about 15 s)"
"""Text of the bar before the first run begins: a trace is read, a workload is profiled."""


def _is_watched() -> bool:
    """Return whether a user can see the bar: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Bar:
    """Progress over several runs. Call it with (label, fraction of that run), as lab.runs.runner does.

    Several runs may report in parallel. The bar appears only on a terminal or in a notebook, only after
    PATIENCE_S, and disappears at the end. preparing: its text before a run has begun.
    """

    def __init__(self, runs: int, *, wanted: bool, preparing: str = PREPARING) -> None:
        self._runs, self._preparing = runs, preparing
        self._fractions: dict[str, float] = {}
        self._live: _Live | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE_S, self._appear) if wanted and _is_watched() else None

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Wait for a bar that is just appearing, so that nothing stays on the screen.
        with self._lock:
            self._timer = None
            if self._live is not None:
                self._live.stop()

    def __call__(self, label: str, fraction: float) -> None:
        """Show that the run `label` has reached `fraction` (0 to 1)."""
        self._fractions[label] = fraction
        if self._live is not None:
            done = sum(self._fractions.values())
            self._live.show(f"{label} ({len(self._fractions)} of {self._runs})", done)

    def _appear(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._live = _Live(self._runs)
                self._live.show(self._preparing if not self._fractions else "", sum(self._fractions.values()))


class Rate(Bar):
    """Progress over many units: number done, number done per second, and the time left. noun: their name."""

    def __init__(self, *, wanted: bool, noun: str = "unit") -> None:
        super().__init__(1, wanted=wanted)
        self._noun = noun
        self._began_s = time.monotonic()

    def tell(self, done: int, failed: int, total: int) -> None:
        """Show that `done` of `total` are done, of which `failed` failed."""
        self._fractions = {"": done / max(total, 1)}
        if self._live is not None:
            rate = done / (time.monotonic() - self._began_s)
            ill = f", {failed:,} failed" if failed else ""
            self._live.show(
                f"{done:,} of {counted(total, self._noun)}, {rate:.3g}/s{ill}", done / max(total, 1)
            )


class _Live:
    """The bar on the screen."""

    def __init__(self, runs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        self._progress = Progress(
            text,
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("", total=float(runs))
        self._progress.start()

    def show(self, text: str, done: float) -> None:
        self._progress.update(self._task, description=printable(text), completed=done)

    def stop(self) -> None:
        self._progress.stop()
