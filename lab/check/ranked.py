"""Checks the promises of a recommender on made-up jobs, and of a trace reader on a user's file.

For: lab.check.checking. Not for: how good a ranking is, which `twinbed recommend` shows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from control.jobs import Configuration, History, InstanceType, Job, candidates
from control.recommender.ports import Recommendation, Recommender, Request, Stop, affordable, no_observations
from lab.check.driven_fleet import BrokenPromiseError
from traces.load import load
from traces.schema import QUANTITIES, UsageTrace
from twinbed import ScenarioError, TraceError
from twinbed.files import MIB, read_user_bytes
from twinbed.own import Own, OwnCodeError

_REQUESTS = 10
_MOST_SAMPLE_BYTES = 64 * MIB


def requests() -> Iterator[tuple[Request, NDArray[np.float64]]]:
    """Yield questions about made-up jobs, and the time of the job on each candidate, s, float64[n]."""
    types = {
        name: InstanceType(name, "made-up", vcpus, vcpus * ratio)
        for name, vcpus, ratio in (("small", 2.0, 2.0), ("large", 8.0, 4.0), ("wide", 8.0, 8.0))
    }
    prices = {name: 0.05 * kind.vcpus + 0.006 * kind.memory_gib for name, kind in types.items()}
    among = candidates(
        types, prices, [Configuration(name, count) for name in types for count in (1, 2, 4, 8)]
    )
    for seed in range(_REQUESTS):
        random = np.random.default_rng(seed)
        serial, size = 10 ** random.uniform(-2.5, -0.3, (6, 1)), 10 ** random.uniform(2.3, 3.3, (6, 1))
        time_s = size * (serial + (1 - serial) * 64 / (among.vcpus * among.count))
        past = History(
            tuple(f"job-{row}" for row in range(5)),
            among,
            time_s[1:],
            time_s[1:] / 3600 * among.price_usd_h,
            np.ones((5, len(among)), np.bool_),
        )
        limit = float(np.quantile(among.price_usd_h, 0.7)) if seed % 2 else np.inf
        yield Request(Job("new"), among, budget_usd_h=limit, history=past, expected_s=time_s[0]), time_s[0]


def rankings(make: Own) -> Iterator[str]:
    """Rank every question without trials and after three. Raises BrokenPromiseError."""
    answered, why = 0, ""
    for number, (request, time_s) in enumerate(requests()):
        tried = no_observations()
        for candidate in np.flatnonzero(affordable(request))[:3].tolist():
            cost = time_s[candidate] / 3600 * request.candidates.price_usd_h[candidate]
            tried = tried.with_trial(candidate, time_s[candidate], cost, True)
        for asked in (request, request.seen(tried)):
            try:
                first, second = (make.make().recommend(asked) for _ in range(2))
            except OwnCodeError:
                raise
            except ScenarioError as error:  # A recommender may refuse a question that lacks what it needs.
                why = str(error)
                continue
            answered += 1
            problem = _problem(asked, first) or ("a second run ranks differently" if first != second else "")
            if problem:
                raise BrokenPromiseError(f"question {number}: {problem}")
        yield f"{answered} rankings of {2 * number + 2} questions"
    if not answered:
        raise BrokenPromiseError(f"it refuses every question: {why}")


def _problem(asked: Request, ranking: list[Recommendation]) -> str:
    among = asked.candidates
    names = [str(among.configuration(row)) for row in range(len(among))]
    seen = [str(row.configuration) for row in ranking]
    if len(set(seen)) < len(seen):
        return "a configuration is ranked twice"
    for row, name in zip(ranking, seen, strict=True):
        if name not in names:
            return f"{name} is no candidate"
        if not abs(row.price_usd_h - among.price_usd_h[names.index(name)]) < 1e-9:
            return f"{name}: {row.price_usd_h:g} $/h is not its price"
        for what, median, span in (
            ("time", row.time_s, row.time_interval),
            ("cost", row.cost_usd, row.cost_interval),
        ):
            if not (isfinite(median) and 0 < span.low <= median <= span.high):
                return (
                    f"{name}: its {what} {median:g} is not above 0 and within {span.low:g} to {span.high:g}"
                )
        if not row.reason:
            return f"{name}: no reason"
    return ""


def searches(make: Own) -> Iterator[str]:
    """Search until the end, with trials that succeed and with trials that fail. Raises BrokenPromiseError."""
    for number, (request, time_s) in enumerate(requests()):
        for ok in (True, False):
            took = [_searched(make.make(), request, time_s, ok, f"search {number}: ") for _ in range(2)]
            if took[0] != took[1]:
                raise BrokenPromiseError(f"search {number}: a second search tries other candidates")
        yield f"{2 * number + 2} searches of {len(request.candidates)} candidates"


def _searched(
    mine: Recommender, request: Request, time_s: NDArray[np.float64], ok: bool, where: str
) -> list[int]:
    search, observed = mine.searcher(request, seed=3), no_observations()
    allowed, price = affordable(request), request.candidates.price_usd_h
    while True:
        step = search.propose(observed)
        at = step.best if isinstance(step, Stop) else step.candidate
        if not 0 <= at < len(price) or not allowed[at]:
            raise BrokenPromiseError(f"{where}candidate {at} does not exist, or is above the price per hour")
        if not step.reason:
            raise BrokenPromiseError(f"{where}the step has no reason")
        if isinstance(step, Stop):
            return [*observed.candidate.tolist(), at]
        if at in observed.candidate:
            raise BrokenPromiseError(f"{where}candidate {at} is tried twice")
        observed = observed.with_trial(at, time_s[at], time_s[at] / 3600 * price[at], ok)


def readings(mine: Own, sample: Path) -> Iterator[str]:
    """Read a user's file twice, and broken copies of it. Raises BrokenPromiseError, TraceError if there is no
    such file."""
    content = read_user_bytes(sample, _MOST_SAMPLE_BYTES, TraceError)
    try:
        first, second = (load(sample, format=mine.text) for _ in range(2))
    except TraceError as error:
        raise BrokenPromiseError(f"it does not read {sample.name}: {error}") from None
    if not _same(first, second):
        raise BrokenPromiseError(f"{sample.name}: a second reading gives another trace")
    if read_user_bytes(sample, _MOST_SAMPLE_BYTES, TraceError) != content:
        raise BrokenPromiseError(f"{sample.name}: it changed the file")
    yield f"{sample.name}: {len(first.containers)} containers, {len(first.present)} intervals"
    random = np.random.default_rng(0)
    broken = {
        "empty": b"",
        "noise": random.bytes(4096),
        **{f"cut at {cut:g} %": content[: int(len(content) * cut / 100)] for cut in (10, 50, 90)},
    }
    with tempfile.TemporaryDirectory(prefix="twinbed-check-") as folder:
        for name, part in broken.items():
            path = Path(folder) / sample.name
            path.write_bytes(part)
            try:
                load(path, format=mine.text)
            except TraceError:  # A refusal in one line is right.
                continue
            except OwnCodeError as error:
                raise BrokenPromiseError(f"{name}: {error}; raise twinbed.TraceError instead") from None
    yield f"{sample.name}, and {len(broken)} broken copies"


def _same(one: UsageTrace, other: UsageTrace) -> bool:
    """Return whether two traces have the same content."""
    facts, arrays = ("containers", "apps", "start_s", "interval_s"), ("present", *QUANTITIES)
    return all(getattr(one, name) == getattr(other, name) for name in facts) and all(
        np.array_equal(first, second)
        for name in arrays
        for first, second in [(getattr(one, name), getattr(other, name))]
    )
