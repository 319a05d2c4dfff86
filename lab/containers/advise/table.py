"""The table that `twinbed advise` prints. For: people. Not for: the advice's own file (model.py)."""

from __future__ import annotations

from dataclasses import replace

from lab.charts.words import significant
from lab.containers.advise.model import Advice, Interval, Outcome, Row
from lab.runs.formats import Column, Record, Result, Value

_MIB = 1 << 20

_COLUMNS = (
    Column("name", "Container"),
    Column("verdict", "Verdict"),
    Column("cpu", "CPU request / limit", "cores"),
    Column("memory", "Memory request / limit", "MiB"),
    Column("throttled", "Throttled", "% of periods"),
    Column("oom_events", "OOM events"),
    Column("late", "Late on a full host", "% of work"),
    Column("money_per_day", "Money a day"),
    Column("reason", "Reason"),
)


def result(advice: Advice) -> Result:
    """Return the advice as a table; `a → b` is before and after."""
    made = advice.made
    rows = tuple(_record(row) for row in advice.rows)
    counts = {word: sum(row.verdict == word for row in advice.rows) for word in ("apply", "care", "leave")}
    facts = {
        "Source": advice.made.source,
        "History": f"{_length(advice.made.duration_s)}, intervals of {advice.made.interval_s:g} s",
        "Candidates": ", ".join(advice.made.candidates),
        "Hosts": f"{made.hosts} of {made.host_cores:g} cores" if made.hosts else "one for each container",
        "Risk": f"{100 * advice.made.risk:g} % of periods throttled",
        "Verdicts": ", ".join(f"{word} {count}" for word, count in counts.items()),
        "Money a day": money(advice),
    }
    legend = (
        "a → b: the present settings → the advice, replayed on the history. –: unknown or undefined. A row "
        "to leave shows what is set now."
    )
    units, titles = {"money_per_day": made.currency}, {"late": "Late on these hosts"} if made.hosts else {}
    columns = [
        replace(column, title=titles.get(column.key, column.title), unit=units.get(column.key, column.unit))
        for column in _COLUMNS
    ]
    return Result(tuple(columns), rows, facts, legend, tuple(advice.notes))


def _length(seconds: float) -> str:
    """Return a length of time in the largest unit of which it is at least one."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size:
            count = f"{seconds / size:.3g}"
            return f"{count} {unit.removesuffix('s') if count == '1' else unit}"
    return f"{seconds:.3g} s"


def money(advice: Advice) -> str:
    """Return the money that all rows reserve now, and under the advice, as text. Rows to leave do not
    change."""
    currency = advice.made.currency
    now = [_reserved(row.before) for row in advice.rows]
    then = [_reserved(row.expected) for row in advice.rows]
    after = sum(value for value in then if value is not None)
    known = [was for was, will in zip(now, then, strict=True) if was is not None and will is not None]
    if len(known) < len(advice.rows):
        told = f"{len(known)} of {len(advice.rows)} rows"
        return f"{significant(after, 4)} {currency} (what is reserved now is known of {told})"
    return f"{significant(sum(known), 4)} → {significant(after, 4)} {currency}"


def _reserved(outcome: Outcome | None) -> float | None:
    """Return the money of what is reserved, None if it is unknown."""
    return outcome.money_per_day.mean if outcome is not None and outcome.money_per_day else None


def _record(row: Row) -> Record:
    outcomes: dict[str, Value] = {
        "throttled": _outcome(row, "throttled_share", 100.0),
        "oom_events": _outcome(row, "oom_events", 1.0),
        "late": _outcome(row, "late_share", 100.0),
        "money_per_day": _outcome(row, "money_per_day", 1.0),
    }
    settings: dict[str, Value] = {
        "cpu": _change(row, "cpu_{}_cores", 1.0),
        "memory": _change(row, "memory_{}_bytes", 1.0 / _MIB),
    }
    return {
        "name": row.name,
        "verdict": row.verdict,
        **settings,
        **outcomes,
        "reason": row.reason + row.not_told,
    }


def _change(row: Row, key: str, factor: float) -> str:
    """Return `request / limit`, each with the present value if that is known and differs."""
    texts = []
    for what in ("request", "limit"):
        name = key.format(what)
        before, after = (_shown(getattr(setting, name), factor) for setting in (row.current, row.meant))
        texts.append(after if before in (after, _shown(None, factor)) else f"{before} → {after}")
    return " / ".join(texts)


def _shown(value: float | str | None, factor: float) -> str:
    """Return one quantity of a setting as text; "–": unknown."""
    if value is None or isinstance(value, str):
        return value or "–"
    return significant(value * factor, 4)


def _outcome(row: Row, key: str, factor: float) -> str:
    after = _mean(row.expected, key, factor)
    before = after if row.before is None else _mean(row.before, key, factor)
    return after if before == after else f"{before} → {after}"


def _mean(outcome: Outcome | None, key: str, factor: float) -> str:
    interval: Interval | None = getattr(outcome, key, None)
    return "–" if interval is None else significant(interval.mean * factor)
