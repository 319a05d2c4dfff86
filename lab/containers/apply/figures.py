"""What an apply counts, and the same as series for Prometheus.

For: those who watch it with --metrics. Not for: any decision. The port reads from a thread of its own, so
what grows is copied before it is looped over.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from lab.containers.apply.conditions import Happened

if TYPE_CHECKING:
    from testbed.containers.exporting.reading import Series

_MOST_LISTED = 10_000
"""Containers with series of their own."""

_EVENTS = {"set": "limits_set", "put back": "limits_put_back", "leave": "limits_left", "abort": "aborts"}
"""Lines of the audit file that are counted, and their metrics."""


class Figures:
    """An apply's own figures.

    noted: lines of the audit file, by kind
    steps: part of each step's watch that is over, 0 to 1
    happened: what happened to each watched container since its change
    """

    def __init__(self) -> None:
        self.noted: Counter[str] = Counter()
        self.steps: dict[str, float] = {}
        self.happened: dict[str, Happened] = {}

    def read(self) -> list[Series]:
        """Return every metric of an apply."""
        from testbed.containers.exporting.reading import Series, plain

        steps, happened = dict(self.steps), dict(islice(self.happened.copy().items(), _MOST_LISTED))
        labels = [(name,) for name in happened]
        columns = {
            "periods": [one.periods for one in happened.values()],
            "throttled_periods": [one.throttled for one in happened.values()],
            "oom_kills": [one.oom for one in happened.values()],
            "restarts": [one.restarts for one in happened.values()],
        }
        return [
            *plain({f"twinbed_apply_{name}_total": self.noted[what] for what, name in _EVENTS.items()}),
            Series("twinbed_apply_watch_ratio", list(steps.values()), [(step,) for step in steps]),
            *(
                Series(f"twinbed_apply_container_{name}_total", values, labels)
                for name, values in columns.items()
            ),
        ]
