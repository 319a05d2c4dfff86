"""Conditions that end a watch and take everything back: `throttled > 5%`, `oom > 0`, `restarts > 1`.

For: reading --abort-if, judging what happened to one container since its limits changed, and the figures of
an apply as series for Prometheus. Not for: watching (watching.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from twinbed import ScenarioError

if TYPE_CHECKING:
    from testbed.containers.exporting.reading import Series

LEAST_PERIODS = 50
"""CFS periods before a throttled share counts, 5 s at the usual 100 ms: the first periods after a change give
little information. At the end of a watch fewer periods count, too."""

_FORM = re.compile(r"(throttled|oom|restarts)\s*>\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(%?)")


@dataclass(frozen=True, slots=True)
class Happened:
    """Counts of a container since its limits changed.

    periods, throttled: CFS periods elapsed and throttled
    oom: processes that the OOM killer took
    restarts: times that it was started again
    """

    periods: int
    throttled: int
    oom: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition. quantity: throttled, oom or restarts; bound: a share from 0 to 1, or a number."""

    quantity: str
    bound: float

    def met(self, happened: Happened, *, last: bool) -> str | None:
        """Return the exceeded bound, in words, or None. last: the watch ends now."""
        if self.quantity == "throttled":
            if happened.periods < (1 if last else LEAST_PERIODS):
                return None
            share = happened.throttled / happened.periods
            words = f"throttled in {100 * share:.1f} % of {happened.periods} periods, more than"
            return f"{words} {100 * self.bound:g} %" if share > self.bound else None
        count = happened.oom if self.quantity == "oom" else happened.restarts
        words = "processes killed for lack of memory" if self.quantity == "oom" else "restarts"
        return f"{words}: {count}, more than {self.bound:g}" if count > self.bound else None


def parse(text: str) -> Condition:
    """Return the condition in a text. Raises ScenarioError that shows the form."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ScenarioError(
            f"--abort-if {text[:100]!r}: expected 'throttled > 5%', 'oom > 0' or 'restarts > 1'"
        )
    quantity, number, percent = match[1], float(match[2]), bool(match[3])
    if percent != (quantity == "throttled") or (percent and number > 100):
        form = "a percentage, e.g. 'throttled > 5%'" if quantity == "throttled" else "a number without %"
        raise ScenarioError(f"--abort-if {text[:100]!r}: {quantity} is compared with {form}")
    return Condition(quantity, number / 100 if percent else number)


def unjudged(conditions: Sequence[Condition], happened: Mapping[str, Happened]) -> list[str]:
    """Return a note on the watched containers whose throttling no condition could judge, if there are any."""
    without = [name for name, seen in happened.items() if not seen.periods]
    if not without or all(condition.quantity != "throttled" for condition in conditions):
        return []
    more = f" and {len(without) - 3} more" if len(without) > 3 else ""
    return [
        "Not judged for throttling, because they had no CFS periods (idle, or without a CPU limit): "
        f"{', '.join(without[:3])}{more}"
    ]


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
            "periods": [container.periods for container in happened.values()],
            "throttled_periods": [container.throttled for container in happened.values()],
            "oom_kills": [container.oom for container in happened.values()],
            "restarts": [container.restarts for container in happened.values()],
        }
        return [
            *plain({f"twinbed_apply_{name}_total": self.noted[what] for what, name in _EVENTS.items()}),
            Series("twinbed_apply_watch_ratio", list(steps.values()), [(step,) for step in steps]),
            *(
                Series(f"twinbed_apply_container_{name}_total", values, labels)
                for name, values in columns.items()
            ),
        ]
