"""The choice: which candidate is advised, and whether it should be applied.

For: `ranked`, `chosen` and `verdict`. Not for: computing candidates (candidates.py) nor rehearsing them. Each
candidate is computed from the first half of the history and replayed on the second half. The candidates that
break the risk in the fewest rows remain; the cheapest of them is advised. One candidate serves the whole
fleet, because a choice per row would favour the policy that was lucky on that row. Only a row that this
candidate fails gets another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from control.advice.candidates import CURRENT
from control.advice.model import Sizes
from control.allocator.model import Flags, Floats

Verdict = Literal["apply", "care", "leave"]

FEWEST_SAMPLES = 100
"""Number of samples below which nothing is advised: krr's points-required."""

_SHORTEST_DAYS = 1.0
"""Length of a history, days, below which it cannot show a daily cycle."""

_LEAK = 0.2
"""Growth of the memory peak over half of the history, as a share of the peak, that counts as a leak."""

_SAME = 0.1
"""Relative change of a setting that is not worth a restart: the VPA's pod-update-threshold."""

MOST_LATE = 0.5
"""Share of work that waits on a full host. Above it, a container or a fleet cannot keep up."""

_NOTHING = (
    "It requests nothing now, so a host that is full leaves it nothing; Kubernetes needs new pods for it."
)
"""Reason for care with a row that has no requests: a pod's quality of service cannot change in place."""

_CHEAPER = 0.98
"""Share of the present price below which a lower price alone is worth a change."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a candidate in a replay, float64[R]; NaN: undefined.

    throttled: share of periods, worst seed. oom: events, worst seed. late: mean share of work that waits on a
    full host. money: price per day. held: bool[R], the candidate sets every request and no memory limit below
    the peak.
    """

    throttled: Floats
    oom: Floats
    late: Floats
    money: Floats
    held: Flags

    def inside(self, risk: float) -> Flags:
        """Return the rows whose throttling and OOM kills stayed within the risk, bool[R]."""
        return self.held & ~(self.oom > 0) & ~(self.throttled > risk)


def holds(sizes: Sizes, peak_bytes: Floats, memory_known: Flags) -> Flags:
    """Return the rows whose settings cover every known resource and keep memory above the peak, bool[R]."""
    memory = ~(sizes.memory_limit < peak_bytes) & (sizes.memory_request >= peak_bytes)
    return (sizes.cpu_request > 0) & (memory | ~memory_known)


def ranked(figures: Mapping[str, Figures], risk: float) -> list[str]:
    """Return the candidates from best to worst. Equal candidates keep their order.

    The criteria, in order: rows outside the risk; price of the rows that every candidate prices; late work;
    throttling.
    """
    priced = np.all([~np.isnan(own.money) for own in figures.values()], axis=0)

    def key(name: str) -> tuple[float, ...]:
        own = figures[name]
        wrong = float((~own.inside(risk)).sum())
        sums = [np.nansum(values[priced]) for values in (own.money, own.late, own.throttled)]
        return (wrong, *(round(float(value), 9) for value in sums))

    return sorted(figures, key=key)


def chosen(order: list[str], figures: Mapping[str, Figures], risk: float) -> tuple[list[str], Flags]:
    """Return each row's candidate, and whether it stays within the risk on the whole history.

    A row gets the first candidate of `order` that stays within the risk, or else the first of `order`. If
    most of the row's work would still wait, the row gets the first candidate that keeps up and costs less
    than the present settings, if there is one. A dearer candidate would use up what the fleet saves.
    """
    inside = np.stack([figures[name].inside(risk) for name in order])
    first = np.argmax(inside, axis=0)
    if CURRENT in figures:
        starved = np.stack([figures[name].late for name in order]) > MOST_LATE
        cheaper = [figures[name].money < figures[CURRENT].money * _CHEAPER for name in order]
        cures = inside & ~starved & np.stack(cheaper)
        waits = starved[first, np.arange(len(first))] & cures.any(axis=0)
        first = np.where(waits, np.argmax(cures, axis=0), first)
    return [order[index] for index in first], np.asarray(inside.any(axis=0))


@dataclass(frozen=True, slots=True)
class Case:
    """The facts for the verdict on one row.

    samples: intervals of all members. days: length of the history. memory_known, set_known: whether memory
    and the present settings are known. oom_events: kills in the history. oom_limit_is_set: whether one of
    them happened under a memory limit that is at least the present one. grown: growth of the peak, as a
    share of the peak. inside: whether the advice stays within the risk. changes: relative change of each
    setting, None: unknown. before, after: (throttled, oom, late, money), NaN: undefined. means: throttled and
    oom before, as means over the seeds, which the row shows; None: as in before. shared: whether full hosts
    were rehearsed.
    """

    samples: float
    days: float
    memory_known: bool
    set_known: bool
    oom_events: float
    grown: float
    inside: bool
    changes: tuple[float | None, ...]
    before: tuple[float, float, float, float] | None
    after: tuple[float, float, float, float]
    means: tuple[float, float] | None = None
    shared: bool = False
    oom_limit_is_set: bool = False


def verdict(case: Case, risk: float) -> tuple[Verdict, str]:
    """Return (apply | care | leave, the reason in one sentence)."""
    if case.samples < FEWEST_SAMPLES:
        few = "1 sample of it is" if round(case.samples) == 1 else f"{case.samples:.0f} samples of it are"
        return "leave", f"Only {few} known; {FEWEST_SAMPLES} are needed to size it."
    if not case.inside:
        return "leave", "No candidate stayed inside the risk when it was replayed."
    needed = _need(case, risk)
    if not needed:
        known = [change for change in case.changes if change is not None]
        if case.set_known and len(known) == len(case.changes) and max(map(abs, known)) < _SAME:
            return "leave", "What is set now differs by less than 10 % from the advice."
        if case.before is not None and case.after[3] > case.before[3] * _CHEAPER:
            held = "kept the risk, though most work waited" if case.before[2] > MOST_LATE else "was enough"
            return "leave", f"What is set now {held}, and the advice is not cheaper."
    waits = _waits(case)
    if waits:
        return ("care", f"{needed} {waits}") if needed else ("leave", waits)
    doubt = _doubt(case)
    return ("care", doubt) if doubt else ("apply", needed or _gain(case))


def _waits(case: Case) -> str:
    """Return what to do where the advice lets most work wait, and what is set now does not; else ""."""
    late, before = case.after[2], case.before
    if late <= MOST_LATE or (before is not None and before[2] >= late):
        return ""
    where, what = (
        ("on the hosts that were given", "more hosts are needed, or larger ones.")
        if case.shared
        else ("if its host had no CPU to spare", "give --hosts and --host-cores to see it on yours.")
    )
    return f"With the advice {_digits(100 * late)} % of its work would wait {where}; {what}"


def _need(case: Case, risk: float) -> str:
    """Return the reason why the present settings must change, or ""."""
    if case.before is None:
        return ""
    throttled, oom, *_ = case.before
    mean, events = case.means or (throttled, oom)
    if oom > 0:
        return f"What is set now meets its memory limit {_often(events)} in the replay; the advice does not."
    if throttled > risk:
        share, where = (mean, "") if mean > risk else (throttled, " in the worst replay")
        share_text = f"{_digits(100 * share)} % of its periods{where}"
        return f"What is set now throttles it in {share_text}; the advice does not."
    if case.oom_limit_is_set:
        return f"It met the memory limit that is set now {_often(case.oom_events)} in the history."
    return _NOTHING if _asks_nothing(case) else ""


def _asks_nothing(case: Case) -> bool:
    return case.before is not None and case.before[3] == 0 < case.after[3]


def _doubt(case: Case) -> str:
    """Return the first reason for doubt, or ""."""
    if case.oom_events > 0:
        return f"It met its memory limit {_often(case.oom_events)} in the history, so its peak is not known."
    if case.grown > _LEAK:
        grown = f"{100 * case.grown:.0f} %"
        return f"Its memory peak grew by {grown} over half of the history; a leak outgrows every limit."
    if not case.memory_known:
        return "Its memory is not in the history, so only CPU is advised."
    if case.days < _SHORTEST_DAYS:
        hours = 24 * case.days
        length = f"{hours:.3g} h" if hours >= 1 else f"{60 * hours:.3g} min"
        return f"The history of {length} holds no whole day."
    if _asks_nothing(case):
        return _NOTHING
    if not case.set_known:
        return "What is set now is not known, so nothing says that the advice is better."
    return ""


def _often(count: float) -> str:
    return "once" if count == 1 else f"{_digits(count)} times"


def _digits(value: float) -> str:
    """Return a number with three digits, as the row shows it."""
    return f"{float(f'{value:.3g}'):,g}"


def _gain(case: Case) -> str:
    if case.before is None or not case.before[3] > 0:
        return "Its replay stayed inside the risk."
    saved = 100 * (1 - case.after[3] / case.before[3])
    return f"It reserves {saved:.0f} % less money than now, and its replay stayed inside the risk."
