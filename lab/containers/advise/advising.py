"""Makes an advice: candidates, a check on the history's second half, a rehearsal of all of it, verdicts.

For: `advise`. Not for: reading histories (histories.py), the decisions themselves (control.advice), nor the
forms in which an advice is written (forms).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

import numpy as np

from control.advice import candidates, cpu, memory
from control.advice.candidates import CANDIDATES, CURRENT, KRR, LIMITS, VPA
from control.advice.choose import Case, Figures, chosen, holds, ranked, verdict
from control.advice.model import DAY_S, LEAST_CORES, MIB, Sizes, Usage
from control.allocator.krr import KrrSettings
from control.allocator.model import Flags, Floats
from control.allocator.vpa_settings import VpaSettings
from lab.ask.kind import Progress
from lab.charts.words import significant
from lab.containers.advise import shares
from lab.containers.advise.histories import Told
from lab.containers.advise.model import Advice, Interval, Made, Outcome, Row, Setting
from lab.containers.advise.rehearsal import Fates, Hosts, Rehearsal
from lab.containers.input.sections import Price
from twin.containers.model import Machine
from twinbed import ScenarioError, __version__

CHECKING, SEARCHING = "checking", "searching"
"""Labels of progress before the candidates' own: the check on the second half, the search for CPU."""


def _labelled(progress: Progress, source: str, label: str, done: float) -> None:
    """Show progress on one of several histories."""
    progress(f"{source}: {label}", done)


def _notes(wanted: Wanted) -> tuple[str, ...]:
    """Return what holds for all figures."""
    hosts = wanted.hosts
    late = (
        "Late work is work that would be late on a host without any CPU to spare, where a container gets its "
        "request and no more. Each container has a host of its own; give --hosts and --host-cores to let "
        "containers share some."
        if hosts is None
        else f"Containers are placed in turn on {hosts}. Requests are their weights, and late work is work "
        "that those hosts leave late."
    )
    throttling = "" if hosts else ", with CPU to spare"
    return (
        "Requests are reserved. Limits reserve nothing, and may add up to more than a host has.",
        late,
        f"Throttling is that of the CPU limit{throttling}; without a limit it is undefined.",
        wanted.price.note,
    )


def _sampled(intervals_s: set[float], policies: Sequence[str]) -> Iterator[str]:
    """Yield a sentence if histories have other intervals than those at which krr and the VPA read use."""
    own = {KRR: KrrSettings().sample_interval_s, VPA: VpaSettings().sample_interval_s}
    asked = {name: own[name] for name in own if name in policies}
    if not asked:
        return
    at = " and ".join(f"{name} reads CPU use every {every_s:g} s" for name, every_s in asked.items())
    coarse, fine = max(intervals_s) > max(asked.values()), min(intervals_s) < min(asked.values())
    if coarse != fine:
        how, span = ("lower", max(intervals_s)) if coarse else ("higher", min(intervals_s))
        yield f"In a cluster {at}; here from means over {span:g} s, so requests are {how} where use varies."


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request for advice.

    policies: candidates, of CANDIDATES. risk: largest accepted share of throttled periods.
    seeds: seeds of the rehearsal, at least one. price: price of reserved resources.
    hosts: hosts that the containers of a history share; None: one for each container.
    """

    policies: tuple[str, ...] = CANDIDATES
    risk: float = 0.05
    seeds: tuple[int, ...] = (0, 1)
    price: Price = field(default_factory=Price)
    hosts: Hosts | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.policies if name not in CANDIDATES]
        if unknown:
            raise ScenarioError(f"no candidate {unknown[0]!r}; there are {', '.join(CANDIDATES)}")
        if not set(self.policies) - {CURRENT}:
            raise ScenarioError("the present settings are no advice; name another candidate, too")
        if not self.seeds:
            raise ScenarioError("seeds is 0; a rehearsal needs at least one")
        if not 0 < self.risk < 1:
            raise ScenarioError(f"the risk is {self.risk:g}, expected a share above 0 and below 1")


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Candidates of one history: their settings and their results, by name.

    requested: the most CPU that is requested at a time on each host, cores.
    """

    told: Told
    sizes: dict[str, Sizes]
    fates: dict[str, Fates]
    order: list[str]
    requested: dict[str, Floats]


def advise(
    histories: Sequence[Told],
    wanted: Wanted,
    machine: Machine,
    progress: Progress = lambda _label, _done: None,
) -> Advice:
    """Return the advice on all histories, whose rows must have different names. Raises ScenarioError."""
    rows: list[Row] = []
    notes: list[str] = []
    for told in histories:
        shown = progress if len(histories) == 1 else partial(_labelled, progress, told.source)
        found = rehearse(told, wanted, machine, shown)
        own = _rows(found, wanted)
        rows += own
        followed = np.array([row.verdict != "leave" for row in own])
        notes += [*told.notes, *_compared(found, wanted, followed)]
    name, count = Counter(row.name for row in rows).most_common(1)[0]
    if count > 1:
        raise ScenarioError(f"container {name!r} is in two of the histories; advise on one of them")
    notes += _sampled({told.usage.interval_s for told in histories}, wanted.policies)
    first = histories[0]
    made = Made(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        by=__version__,
        source=", ".join(told.source for told in histories),
        sha256=first.sha256 if len(histories) == 1 else "-".join(told.sha256[:16] for told in histories),
        start_s=min(told.start_s for told in histories),
        duration_s=max(told.usage.cores.shape[1] * told.usage.interval_s for told in histories),
        interval_s=max(told.usage.interval_s for told in histories),
        seeds=list(wanted.seeds),
        candidates=list(wanted.policies),
        risk=wanted.risk,
        currency=wanted.price.currency,
        hosts=wanted.hosts.count if wanted.hosts else None,
        host_cores=wanted.hosts.cores if wanted.hosts else None,
    )
    return Advice(version=1, made=made, rows=rows, notes=[*_notes(wanted), *dict.fromkeys(notes)])


def rehearse(told: Told, wanted: Wanted, machine: Machine, progress: Progress) -> Rehearsed:
    """Return the candidates, ranked by a check on the second half, and rehearsed on the whole history."""
    rehearsal = Rehearsal(told, machine, wanted.price, wanted.seeds, wanted.hosts)
    names = [name for name in CANDIDATES if name in wanted.policies]
    order = _order(told, wanted, machine, [name for name in names if name != CURRENT], progress)
    wants = names if CURRENT in names else [*names, CURRENT]
    sizes = settings(wants, told, rehearsal, wanted.risk, progress)
    fates = {}
    for name, own in sizes.items():
        progress(name, 0.0)
        fates[name] = rehearsal.fates(own, lambda done, name=name: progress(name, done))  # type: ignore[misc]
    requested = {name: rehearsal.most_requested(own.reserved_cores) for name, own in sizes.items()}
    return Rehearsed(told, sizes, fates, order, requested)


def _compared(found: Rehearsed, wanted: Wanted, followed: Flags) -> Iterator[str]:
    """Yield a sentence on the fleet's result under each candidate, the best first. Rows to leave do not
    count. followed: bool[R], the other rows."""
    if not followed.any():
        return
    left = "; rows to leave do not count" * (not followed.all())
    left += "; current comes last and has no rank" * (CURRENT in wanted.policies)
    yield f"{found.told.source}: candidates, the best first, on the half that they were not made from{left}:"
    for name in [*found.order, *([CURRENT] if CURRENT in wanted.policies else [])]:
        fates = found.fates[name]
        money = fates.money_per_day.mean(axis=0)
        known = np.isfinite(money) & followed
        if not known.any():
            continue
        said = [f"{significant(money[known].sum(), 4)} {wanted.price.currency} a day"]
        if np.isfinite(fates.throttled_share[:, known]).any():
            throttled = 100 * fates.throttled[:, known].sum() / max(fates.periods[:, known].sum(), 1)
            said.append(f"throttled in {significant(throttled, 2)} % of the periods")
        if np.isfinite(fates.oom_events[:, known]).any():
            said.append(f"{np.nansum(fates.oom_events[:, known].mean(axis=0)):.0f} OOM events")
        late_s, arrived_s = (values[:, known].sum() for values in (fates.late_s, fates.arrived_s))
        where = "those hosts" if wanted.hosts else "a full host"
        late = significant(100 * late_s / max(arrived_s, 1e-12))
        said.append(f"{late} % of the work late on {where}")
        some = "" if known.all() else f" ({known.sum()} of {len(known)} rows)"
        yield f"{name}: {', '.join(said)}{some}, replayed on the whole history."
        full = found.requested[name].max() if wanted.hosts else 0.0
        if wanted.hosts and full > wanted.hosts.cores:
            yield (
                f"{name}: its requests add up to {full:.3g} of a host's {wanted.hosts.cores:g} cores; a "
                "scheduler would not place all of them."
            )


def settings(
    names: Sequence[str],
    told: Told,
    rehearsal: Rehearsal,
    risk: float,
    progress: Progress = lambda _label, _done: None,
) -> dict[str, Sizes]:
    """Return the candidates' settings, made from this history only, in whole millicores and MiB.

    progress: function called with the progress of the search for CPU, under one label.
    """
    usage, made = told.usage, dict[str, Sizes]()
    request, limit_request, limit = np.zeros(0), np.zeros(0), np.zeros(0)
    if set(names) - {KRR, VPA, CURRENT}:
        tell = _Counted(progress, shares.REHEARSALS + 3 * cpu.HALVINGS * (LIMITS in names))
        request = shares.requests(rehearsal, usage, risk, tell)
        limit_request, limit = memory.sizes(usage)
    for name in names:
        if name == KRR:
            made[name] = candidates.krr(usage)
        elif name == VPA:
            made[name] = candidates.vpa(usage)
        elif name == CURRENT:
            made[name] = usage.current
            continue
        else:
            most = np.full(usage.rows, np.inf)
            if name == LIMITS:
                halves = (0, 0.5), (0.5, 1), (0, 1)
                parts = [tell(rehearsal.part(*ends)) for ends in halves]
                most = np.maximum(cpu.limits(rehearsal.highest, risk, *parts), request)
            made[name] = Sizes(request, most, limit_request, limit)
        made[name] = _rounded(made[name])
    return made


class _Counted:
    """Shows progress over `total` rehearsals of searches."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, rehearse: cpu.Rehearse) -> cpu.Rehearse:
        """Return `rehearse` with a count of its calls, which moves the progress."""

        def counted(quota: Floats) -> Floats:
            found = rehearse(quota)
            self._done += 1
            self._progress(SEARCHING, min(self._done / self._total, 1.0))
            return found

        return counted


def _order(
    told: Told, wanted: Wanted, machine: Machine, names: Sequence[str], progress: Progress
) -> list[str]:
    """Return the candidates by their result on the second half when made from the first."""
    length = told.usage.cores.shape[1]
    half = length // 2
    if half == 0 or len(names) == 1:
        return list(names)
    first, second = told.part(0, half), told.part(half, length)
    progress(CHECKING, 0.0)
    early = Rehearsal(first, machine, wanted.price, wanted.seeds[:1])
    late = Rehearsal(second, machine, wanted.price, wanted.seeds[:1], wanted.hosts)
    share = 1 / (len(names) + 1)
    sizes = settings(names, first, early, wanted.risk, lambda _, done: progress(CHECKING, share * done))
    seen = (first.usage.samples() > 0) & (second.usage.samples() > 0)
    figures = {}
    for index, name in enumerate(names):
        own = figures_of(late.fates(sizes[name]), sizes[name], first.usage)
        figures[name] = Figures(
            own.throttled[seen], own.oom[seen], own.late[seen], own.money[seen], own.held[seen]
        )
        progress(CHECKING, (index + 2) * share)
    return ranked(figures, wanted.risk)


def figures_of(fates: Fates, sizes: Sizes, usage: Usage) -> Figures:
    """Return the figures of a replay: of the worst seed for limits, and means over the seeds for the rest."""
    return Figures(
        throttled=fates.throttled_share.max(axis=0),
        oom=fates.oom_events.max(axis=0),
        late=fates.late_share.mean(axis=0),
        money=fates.money_per_day.mean(axis=0),
        held=holds(sizes, usage.peak_bytes(), usage.memory_known),
    )


def _rounded(sizes: Sizes) -> Sizes:
    """Return settings rounded up so that all forms can express them: whole millicores, at least 10, and whole
    MiB.
    """

    def cores(values: Floats) -> Floats:
        return np.maximum(np.ceil(np.round(values * 1000, 6)) / 1000, LEAST_CORES)

    def size(values: Floats) -> Floats:
        return np.maximum(np.ceil(values / MIB), 1) * MIB

    return Sizes(
        cores(sizes.cpu_request), cores(sizes.cpu_limit), size(sizes.memory_request), size(sizes.memory_limit)
    )


def _rows(found: Rehearsed, wanted: Wanted) -> list[Row]:
    told, usage = found.told, found.told.usage
    figures = {name: figures_of(found.fates[name], found.sizes[name], usage) for name in found.sizes}
    names, inside = chosen(found.order, figures, wanted.risk)
    peak_bytes, peak_cores, samples = usage.peak_bytes(), usage.peak_cores(), usage.samples()
    grown, oom_events = memory.growth(usage) / np.maximum(peak_bytes, 1.0), usage.oom_events()
    oom_limit, days = usage.oom_limit_bytes(), usage.cores.shape[1] * usage.interval_s / DAY_S
    rows = []
    for row, named in enumerate(told.rows):
        name = names[row]
        current, advised = setting(usage.current, row), setting(found.sizes[name], row)
        is_set = any(value is not None for value in current.model_dump().values())
        before = _numbers(figures[CURRENT], row) if is_set else None
        now = found.fates[CURRENT]
        case = Case(
            samples=float(samples[row]),
            days=days,
            memory_known=bool(usage.memory_known[row]),
            set_known=_is_known(current, usage, row),
            oom_events=float(oom_events[row]),
            grown=float(grown[row]),
            inside=bool(inside[row]),
            changes=_changes(current, advised),
            before=before,
            after=_numbers(figures[name], row),
            means=(float(now.throttled_share[:, row].mean()), float(now.oom_events[:, row].mean())),
            shared=wanted.hosts is not None,
            oom_limit_is_set=bool(oom_limit[row] >= usage.current.memory_limit[row]),
        )
        word, reason = verdict(case, wanted.risk)
        rows.append(
            Row(
                name=named.name,
                namespace=named.namespace,
                kind=named.kind,
                workload=named.workload,
                container=named.container,
                is_init=named.is_init,
                members=list(named.members),
                replicas=named.replicas,
                current=current,
                advised=advised,
                policy=name,
                verdict=word,
                reason=reason,
                unknown=_unknown(usage, row),
                cpu_limit_reason="" if word == "leave" else _limit_reason(found, name, row, wanted.risk),
                before=outcome(now, row) if is_set else None,
                after=outcome(found.fates[name], row),
                peak_cores=float(peak_cores[row]),
                peak_bytes=float(peak_bytes[row]),
            )
        )
    return rows


def setting(sizes: Sizes, row: int) -> Setting:
    """Return the settings of container `row` as an advice states them: None: no opinion, "none": no limit."""
    request, limit = float(sizes.cpu_request[row]), float(sizes.cpu_limit[row])
    memory_request, bound = float(sizes.memory_request[row]), float(sizes.memory_limit[row])
    return Setting(
        cpu_request_cores=request if request > 0 else None,
        cpu_limit_cores="none" if limit == math.inf else limit if limit > 0 else None,
        memory_request_bytes=int(memory_request) if memory_request >= 1 else None,
        memory_limit_bytes="none" if bound == math.inf else int(bound) if bound >= 1 else None,
    )


def outcome(fates: Fates, row: int) -> Outcome:
    """Return a row's outcome with its intervals over the seeds."""

    def interval(values: Floats) -> Interval | None:
        own = values[:, row]
        if not np.isfinite(own).all():
            return None
        return Interval(mean=float(own.mean()), low=float(own.min()), high=float(own.max()))

    return Outcome(**{name: interval(getattr(fates, name)) for name in Outcome.model_fields})


def _numbers(figures: Figures, row: int) -> tuple[float, float, float, float]:
    columns = figures.throttled, figures.oom, figures.late, figures.money
    throttled, oom, late, money = (float(column[row]) for column in columns)
    return throttled, oom, late, money


def _is_known(current: Setting, usage: Usage, row: int) -> bool:
    memory_set = current.memory_limit_bytes is not None or not usage.memory_known[row]
    return memory_set and (current.cpu_limit_cores is not None or current.cpu_request_cores is not None)


def _unknown(usage: Usage, row: int) -> list[str]:
    """Return which facts about a row the history lacks. A request that is known to be unset is not
    lacking."""
    names = {
        "cpu_request": "the CPU request now",
        "cpu_limit": "the CPU limit now",
        "memory_request": "the memory request now",
        "memory_limit": "the memory limit now",
    }
    unset = [words for name, words in names.items() if math.isnan(getattr(usage.current, name)[row])]
    return unset if usage.memory_known[row] else [*unset, "memory use"]


def _changes(current: Setting, advised: Setting) -> tuple[float | None, ...]:
    """Return the relative change of each setting; None if one of the two is not known."""
    changes: list[float | None] = []
    for key in Setting.model_fields:
        now, then = getattr(current, key), getattr(advised, key)
        if then is None or now == then:
            changes.append(0.0)
        elif now is None or "none" in (now, then):
            changes.append(None)
        else:
            changes.append(then / now - 1)
    return tuple(changes)


def _limit_reason(found: Rehearsed, name: str, row: int, risk: float) -> str:
    limit = float(found.sizes[name].cpu_limit[row])
    throttled = significant(100 * float(found.fates[name].throttled_share[:, row].mean()))
    if math.isnan(limit):
        return ""
    if math.isfinite(limit):
        why = {VPA: "the limit keeps its present proportion to the request"}.get(
            name,
            f"the least limit inside the risk of {100 * risk:g} %, plus what the second half needed more",
        )
        return f"Limit of {limit:g} cores: {why}; it throttled in {throttled} % of the periods."
    if LIMITS in found.sizes:
        other = float(found.sizes[LIMITS].cpu_limit[row])
        share = significant(100 * float(found.fates[LIMITS].throttled_share[:, row].mean()))
        return (
            f"No limit: one of {other:g} cores would throttle in {share} % of the periods, and "
            "reserve nothing less."
        )
    return "No limit: the request is its share of a full host, and CPU that others leave is free to it."
