"""docs/results/advice.md: OOM events, money, throttling and late work of each candidate, by set of histories.

For: `python -m studies advice`. Not for: judging one history (halves.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from control.advice.candidates import KRR, LIMITS, REQUESTS_ONLY, VPA
from studies import harness
from studies.advice.halves import CURVE, CURVES, JUDGED, RISK, SEEDS, Sums, added, judge
from studies.advice.histories import SETS, History
from studies.harness import Asked
from twinbed import ScenarioError

_AIM = 0.95
"""Share of containers without an OOM event that is aimed at."""

Judged = tuple[History, dict[str, Sums]]


def make(asked: Asked) -> int:
    """Judge all histories and write the page."""
    if asked.data is None:
        raise ScenarioError("advice: needs the public data sets; give --data FOLDER or set TWINBED_DATA")
    check, judged, absent = harness.clock(asked.minutes), [], []
    for history in SETS:
        check()
        harness.say(f"{history.name} {history.part}")
        try:
            sums = judge(history.read(asked.data), history.name)
        except FileNotFoundError:
            absent.append(history.name)
            continue
        if sums is not None:
            judged.append((history, sums))
    harness.write(asked.out / "advice.md", document(judged, absent))
    return 0


def document(judged: list[Judged], absent: Iterable[str]) -> str:
    """Return the page's text."""
    unseen = [entry for entry in judged if not entry[0].seen]
    seen = [entry for entry in judged if entry[0].seen]
    parts = [
        *_section("Histories that were not seen before", unseen),
        *_curve(unseen),
        *_section("Histories that were seen", seen),
    ]
    conditions = (
        "Each history is cut in the middle. All candidates are made of the first half and replayed on the "
        f"second by the container twin, with {len(SEEDS)} seeds and a risk of {100 * RISK:g} %. A container "
        "counts if it runs in both halves and every candidate says something of it (krr wants 100 samples). "
        "Nothing is set in these histories, so the VPA keeps no limits in proportion: nothing can be killed.",
        "OOM-free: containers of known memory without an OOM event in any replay. Money: what is requested, "
        "at the price of a public cloud's cores and GiB, per day. Throttled: mean share of throttled periods "
        "of containers with a CPU limit; without a limit there is no throttling. Late: share of all CPU work "
        "that waits beyond its period where a host has no CPU to spare and containers get their requests and "
        "no more, which is an upper bound. Limit/request: memory limits over requests, which says how far "
        "memory is promised beyond what is reserved.",
        "Curve: each history's CPU requests are made to cost the same for all three, times what krr's do: "
        "krr's and the VPA's are multiplied, twinbed's are shared out anew within the history; one seed.",
        "The method was chosen on the histories that were seen. It replaced a method whose figures on this "
        "page were known, but nothing else of the other histories was looked at. None of those seen "
        "is of model serving, so its leaps of memory were not there to learn from. CPU of the Google set "
        "and memory of the Google and GenAI sets are relative to reservations that they do not tell. Sets "
        "marked CPU only or memory only lack the other quantity.",
        *([f"Not on this machine: {', '.join(sorted(set(absent)))}."] if absent else []),
    )
    title = "Advice: made on the first half, replayed on the second"
    return harness.page("advice", title, _answer(unseen), parts, conditions)


def _answer(judged: list[Judged]) -> Iterator[str]:
    own, limits, krr, vpa = (_total(judged, name) for name in (REQUESTS_ONLY, LIMITS, KRR, VPA))
    free = [f"{100 * _oom_free(sums):.1f} %" for sums in (own, krr, vpa)]
    aim = "reached" if _oom_free(own) >= _AIM else "missed"
    low, least = _lowest(judged)
    yield (
        f"On {own.containers:.0f} containers that were not seen before, {free[0]} had no OOM event with "
        f"twinbed's advice (aim: {100 * _AIM:g} %, {aim}), {free[1]} with krr's and {free[2]} with the "
        f"VPA's, which sets no limits here; the set with the least is {low} with {100 * least:.1f} %."
    )
    throttled = f"{100 * limits.throttled / max(limits.limited, 1):.1f} %"
    yield (
        f"It reserves {_against(own, krr)} money than krr's and {_against(own, vpa)} than the VPA's, and "
        f"without CPU limits none of the three throttles; with limits ({LIMITS}) containers were throttled "
        f"in {throttled} of their periods."
    )
    yield (
        f"On hosts without any CPU to spare at most {_late(own)} of the work would be late, against "
        f"{_late(krr)} with krr's requests and {_late(vpa)} with the VPA's."
    )


def _curve(judged: list[Judged]) -> Iterator[str]:
    """Yield how money and late work go together, at points where all CPU requests cost the same."""
    total = {name: _total(judged, name) for name in CURVES}
    krr = total[KRR].cpu_money
    if not krr > 0:
        return
    yield "## Money against late work"
    own = _cost_of(total[REQUESTS_ONLY], total[VPA])
    as_late = _late(total[VPA])
    reach = (
        f"To leave no more than the VPA's {as_late} of the work late, twinbed's requests must cost {own:.2f} "
        f"times what krr's CPU requests do; the VPA's cost {total[VPA].cpu_money / krr:.2f} times as much."
        if own < float("inf")
        else f"At no point twinbed's requests leave as little work late as the VPA's {as_late}."
    )
    there = "is" if own <= 1 else "is not"
    yield f"{reach} A point that is cheaper than krr's and no later than the VPA's {there} on the curve."
    names = list(dict.fromkeys(history.name for history, _ in judged))
    rows: list[tuple[str, ...]] = []
    for title in [*names, "all"]:
        own_set = judged if title == "all" else [entry for entry in judged if entry[0].name == title]
        sums = {name: _total(own_set, name) for name in CURVES}
        if not sums[KRR].arrived_s:
            continue
        for name in CURVES:
            late = 100 * sums[name].curve_late_s / sums[name].arrived_s
            first = title if name == CURVES[0] else ""
            rows.append((first, name, *(f"{value:.1f}" for value in late)))
    header = "set", "late (%) by", *(f"{share:g} of krr's CPU money" for share in CURVE)
    yield harness.table(header, rows, left=2)


def _cost_of(own: Sums, aim: Sums) -> float:
    """Return at which point of its curve a candidate has as little late work as the aim, inf: at none."""
    least = aim.late_s / max(aim.arrived_s, 1e-12)
    late = own.curve_late_s / max(own.arrived_s, 1e-12)
    if late.min() > least:
        return float("inf")
    return float(np.interp(-least, -late, CURVE))


def _section(title: str, judged: list[Judged]) -> Iterator[str]:
    if not judged:
        return
    yield f"## {title}"
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(history.name for history, _ in judged):
        own = [entry for entry in judged if entry[0].name == name]
        rows += _rows(name, own)
    if len({history.name for history, _ in judged}) > 1:
        rows += _rows("all", judged)
    header = (
        "set", "candidate", "containers", "OOM-free (%)", "money a day (USD)", "of it CPU", "throttled (%)",
        "late on a full host (%)", "memory limit/request",
    )  # fmt: skip
    yield harness.table(header, rows, left=2)


def _rows(title: str, judged: list[Judged]) -> Iterator[tuple[str, ...]]:
    for candidate in JUDGED:
        sums = _total(judged, candidate)
        throttled = 100 * sums.throttled / sums.limited if sums.limited else float("nan")
        limited = sums.limit_bytes / sums.reserved_bytes if sums.reserved_bytes else float("nan")
        yield (
            title if candidate == JUDGED[0] else "",
            candidate,
            f"{sums.containers:.0f}",
            f"{100 * _oom_free(sums):.1f}" if sums.with_memory else "–",
            f"{sums.cpu_money + sums.memory_money:.4g}",
            f"{sums.cpu_money:.4g}",
            harness.dash(throttled, ".2f"),
            f"{100 * sums.late_s / sums.arrived_s:.1f}" if sums.arrived_s else "–",
            harness.dash(limited, ".2f") if limited else "–",
        )


def _total(judged: list[Judged], candidate: str) -> Sums:
    return added([sums[candidate] for _, sums in judged])


def _oom_free(sums: Sums) -> float:
    return sums.without_oom / max(sums.with_memory, 1)


def _lowest(judged: list[Judged]) -> tuple[str, float]:
    """Return the set in which twinbed's advice left the least share without an OOM event, and the share."""
    shares = {}
    for name in dict.fromkeys(history.name for history, _ in judged):
        sums = _total([entry for entry in judged if entry[0].name == name], REQUESTS_ONLY)
        if sums.with_memory:
            shares[name] = _oom_free(sums)
    low = min(shares, key=lambda name: shares[name], default="none")
    return low, shares.get(low, float("nan"))


def _against(own: Sums, other: Sums) -> str:
    change = (own.cpu_money + own.memory_money) / max(other.cpu_money + other.memory_money, 1e-12) - 1
    return f"{100 * abs(change):.1f} % {'less' if change < 0 else 'more'}"


def _late(sums: Sums) -> str:
    return f"{100 * sums.late_s / max(sums.arrived_s, 1e-12):.0f} %"
