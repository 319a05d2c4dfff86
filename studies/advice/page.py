"""docs/results/advice.md: OOM events, money, throttling and late work of each candidate, by set of histories.

For: `python -m studies advice`. Not for: judging one history (halves.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from control.advice.candidates import KRR, LIMITS, REQUESTS_ONLY, VPA
from studies import harness
from studies.advice.halves import HOST_CORES, JUDGED, RISK, SEEDS, Sums, added, judge
from studies.advice.histories import SETS, History
from studies.harness import Asked
from studies.judge import aim

_AIM = 0.95
"""Aim: share of containers without an OOM event."""

Judged = tuple[History, dict[str, Sums]]


def make(asked: Asked) -> int:
    """Judge all histories and write the page."""
    data, check, judged, absent = asked.public_data(), harness.clock(asked.minutes), [], []
    for history in SETS:
        check()
        harness.say(f"{history.name} {history.part}")
        try:
            sums = judge(history.read(data), history.name)
        except FileNotFoundError:
            absent.append(history.name)
            continue
        if sums is not None:
            judged.append((history, sums))
    text = document(judged, absent)
    harness.publish("advice", text, asked.out)
    return 0


def document(judged: list[Judged], absent: Iterable[str]) -> str:
    """Return the page's text."""
    unseen = [entry for entry in judged if not entry[0].seen]
    seen = [entry for entry in judged if entry[0].seen]
    parts = [
        *_aims(unseen),
        *_section("Histories that the first method had not seen", unseen),
        *_section("Histories that chose the first method", seen),
    ]
    conditions = (
        "Each history is cut in the middle. All candidates are made of the first half and replayed on the "
        f"second by the container twin, with {len(SEEDS)} seeds and a risk of {100 * RISK:g} %. A container "
        "counts if it runs in both halves and every candidate advises on it (krr wants 100 samples). These "
        "histories have no settings, so the VPA keeps no limits in proportion and nothing can be killed.",
        "OOM-free: containers of known memory without an OOM event in any replay. Money: what is requested, "
        "at the price of a public cloud's cores and GiB, per day. Throttled: mean share of throttled "
        "periods of containers with a CPU limit; without a limit there is no throttling. Limit/request: "
        "memory limits over requests, which says how far memory is promised beyond what is reserved.",
        "Late: share of all CPU work that is not done in its period, which counts what is never done. "
        "On shared hosts: containers are placed in turn on hosts that are the same for all candidates, "
        f"with at most {HOST_CORES} cores each, and together as many as the dearest candidate requests. "
        "Requests are weights there, memory limits kill, and one seed is replayed. On full hosts: "
        "containers get their requests and no more, whoever pays for how much; this is an upper bound. "
        "No more: to a tenth of a percent. If the second half were known: the CPU is shared out in the "
        "same way, but by what the second half needs with one of the seeds, and for at most 99 % of the "
        "cheaper rival's money there. Where even that leaves more late than the VPA's requests, no "
        "advice as cheap can be expected to keep up with them: they buy what is not late. The size of "
        "the hosts matters and was chosen after a probe on a history that was seen, SURF day 1: on "
        "hosts of 16 cores, which is what its largest container uses, placement left two thirds of the "
        "work late with every candidate, and twinbed's advice was not ahead there.",
        "The method was first chosen on the histories that were seen. How CPU is shared out was changed "
        "since with the late work of all sets in view, so for that the others are no longer unseen; its "
        "rules and numbers are the same for all sets. Memory is as it was chosen then. None of those seen "
        "is of model serving, so its leaps of memory were not there to learn from. CPU of the Google set "
        "and memory of the Google and GenAI sets are relative to reservations that they do not tell. Sets "
        "marked CPU only or memory only lack the other quantity.",
        *([f"Not replayed: {', '.join(sorted(set(absent)))}."] if absent else []),
    )
    title = "Advice: made on the first half, replayed on the second"
    return harness.page("advice", title, _answer(unseen), parts, conditions)


def _answer(judged: list[Judged]) -> Iterator[str]:
    if not judged:
        yield "No history that the first method had not seen was replayed, so no aim is judged."
        return
    own, limits, krr, vpa = (_total(judged, name) for name in (REQUESTS_ONLY, LIMITS, KRR, VPA))
    free = [f"{100 * _oom_free(sums):.1f} %" for sums in (own, krr, vpa)]
    if own.with_memory:
        low, least = _lowest(judged)
        yield (
            f"With twinbed's advice, {free[0]} of {own.containers:.0f} containers that the first method had "
            f"not seen had no OOM event (aim: {100 * _AIM:g} %, {aim(_oom_free(own) >= _AIM)}; least in "
            f"{low}: {100 * least:.1f} %), {free[1]} with krr's and {free[2]} with the VPA's, which sets no "
            "limits here."
        )
    throttled = f"{100 * limits.throttled / max(limits.limited, 1):.1f} %"
    yield (
        f"It reserves {_against(own, krr)} money than krr's and {_against(own, vpa)} than the VPA's. "
        f"Without CPU limits none of the three throttles; with limits ({LIMITS}) containers were throttled "
        f"in {throttled} of their periods."
    )
    said = {
        key: f"{_late(own, key)} of the work is late, against {_late(krr, key)} with krr's requests and "
        f"{_late(vpa, key)} with the VPA's"
        for key in ("shared_late_s", "late_s")
    }
    yield (
        f"On the same shared hosts for all, {said['shared_late_s']}; on hosts without CPU to spare, "
        f"at most {said['late_s']}. "
        f"With the second half known, requests that cost less than both rivals' would leave "
        f"{_late(own, 'oracle_late_s')} late there."
    )


def _aims(judged: list[Judged]) -> Iterator[str]:
    """Yield, by set, which parts of the aim twinbed's advice reaches beside krr and the VPA."""
    if not judged:
        return
    yield "## The aim, set by set"
    rows = []
    for title, own_set in _by_set(judged):
        own, *others = (_total(own_set, name) for name in (REQUESTS_ONLY, KRR, VPA))
        if not own.containers:
            continue
        dearest = [_money(own) / max(_money(rival), 1e-12) - 1 for rival in others]
        free = f"{_word(_oom_free(own) >= _AIM)}, {100 * _oom_free(own):.1f} %" if own.with_memory else "–"
        late = [_compared(own, others, key) if own.arrived_s else "–" for key in ("shared_late_s", "late_s")]
        cheaper = ", ".join(f"{100 * change:+.1f} %" for change in dearest)
        informed = _compared(own, others, "oracle_late_s", "late_s") if own.arrived_s else "–"
        rows.append((title, free, f"{_word(max(dearest) < 0)}, {cheaper}", *late, informed))
    header = (
        "set", "no OOM event in 95 %", "less money than krr's, the VPA's", "no later on shared hosts",
        "no later on full hosts", "nor if the second half were known",
    )  # fmt: skip
    yield harness.table(header, rows, left=6)


def _compared(own: Sums, others: list[Sums], key: str, rivals_key: str | None = None) -> str:
    """Return the advice's and the rivals' shares of late work, and whether the advice has no more than any
    rival, to a tenth of a percent."""
    keys = (key, *[rivals_key or key] * len(others))
    late = [getattr(sums, name) / sums.arrived_s for name, sums in zip(keys, (own, *others), strict=True)]
    shares = [round(100 * share, 1) for share in late]
    return f"{_word(shares[0] <= min(shares[1:]))}, {shares[0]:g} against {shares[1]:g} and {shares[2]:g} %"


def _word(reached: bool) -> str:
    return "yes" if reached else "**no**"


def _by_set(judged: list[Judged]) -> Iterator[tuple[str, list[Judged]]]:
    """Yield the histories of each set, and all."""
    names = list(dict.fromkeys(history.name for history, _ in judged))
    for name in names:
        yield name, [entry for entry in judged if entry[0].name == name]
    if len(names) > 1:
        yield "all", judged


def _section(title: str, judged: list[Judged]) -> Iterator[str]:
    if not judged:
        return
    yield f"## {title}"
    rows = [row for name, own in _by_set(judged) for row in _rows(name, own)]
    header = (
        "set", "candidate", "containers", "OOM-free (%)", "money a day (USD)", "of it CPU", "throttled (%)",
        "late on shared hosts (%)", "late on full hosts (%)", "memory limit/request",
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
            f"{_money(sums):.4g}",
            f"{sums.cpu_money:.4g}",
            harness.dash(throttled, ".2f"),
            *(f"{100 * late / sums.arrived_s:.1f}" if sums.arrived_s else "–" for late in _lates(sums)),
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
    low = min(shares, key=shares.__getitem__)
    return low, shares[low]


def _money(sums: Sums) -> float:
    return sums.cpu_money + sums.memory_money


def _lates(sums: Sums) -> tuple[float, float]:
    return sums.shared_late_s, sums.late_s


def _against(own: Sums, other: Sums) -> str:
    change = _money(own) / max(_money(other), 1e-12) - 1
    return f"{100 * abs(change):.1f} % {'less' if change < 0 else 'more'}"


def _late(sums: Sums, key: str) -> str:
    return f"{100 * getattr(sums, key) / max(sums.arrived_s, 1e-12):.1f} %"
