"""The candidates: settings that well-known recommenders and twinbed compute from the same history.

For: krr, the VPA, the present settings, and twinbed's two candidates, which use cpu.py and memory.py. Not
for: choosing one (choose.py). Sources: control/allocator/krr.py and control/allocator/vpa_recommender.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.advice.model import Sizes, Usage
from control.allocator.histogram import Buckets, percentiles
from control.allocator.krr import KrrSettings, shown, simple
from control.allocator.model import Floats
from control.allocator.vpa_recommender import CPU_BUCKETS, MEMORY_BUCKETS, estimate
from control.allocator.vpa_settings import VpaSettings

KRR, VPA, REQUESTS_ONLY, LIMITS, CURRENT = "krr", "vpa", "requests-only", "limits", "current"
CANDIDATES = (REQUESTS_ONLY, LIMITS, KRR, VPA, CURRENT)
"""All candidates. If two are equal on every criterion, the first is advised."""


def krr(usage: Usage) -> Sizes:
    """Return the settings of krr's strategy `simple`: CPU percentile as request, no CPU limit, memory peak
    plus 15 %. Kills for memory count, as with its use-oomkill-data, which is off by default.
    """
    settings = KrrSettings()
    first = np.searchsorted(usage.row, np.arange(usage.rows + 1))
    columns, killed_bytes = np.full((4, usage.rows), np.nan), usage.oom_limit_bytes()
    for row in range(usage.rows):
        members = [m for m in range(first[row], first[row + 1]) if usage.present[m].any()]
        cores = [usage.cores[m][usage.present[m]] for m in members]
        memory = [usage.memory_bytes[m][usage.present[m]] for m in members]
        advice = shown(simple(cores, memory, settings, float(killed_bytes[row])))
        limit = np.inf if advice.cpu_limit_cores is None else advice.cpu_limit_cores
        columns[:, row] = (
            advice.cpu_request_cores, limit, advice.memory_request_bytes, advice.memory_limit_bytes,
        )  # fmt: skip
    columns[2:, ~usage.memory_known] = np.nan
    return Sizes(*columns)


def vpa(usage: Usage) -> Sizes:
    """Return the VPA's targets as requests. Limits keep their present proportion to requests.

    The samples of all members go into one histogram per row, as the VPA aggregates a workload's containers.
    """
    settings = VpaSettings()
    length_s = usage.cores.shape[1] * usage.interval_s
    at_s = np.arange(1, usage.cores.shape[1] + 1) * usage.interval_s
    weight = np.exp2((at_s - length_s) / settings.cpu_half_life_s)
    member, interval = np.nonzero(usage.present)
    cpu = _histogram(usage, member, CPU_BUCKETS, usage.cores[member, interval], weight[interval])
    histograms = (cpu, CPU_BUCKETS), (_peaks(usage, settings), MEMORY_BUCKETS)
    fractions = settings.target_percentile, settings.lower_percentile, settings.upper_percentile
    found = np.stack([percentiles(weights, buckets, fractions) for weights, buckets in histograms], axis=1)
    days = np.full(usage.rows, length_s / 86_400.0)
    least = np.array([settings.min_cores, settings.min_bytes])
    target = estimate(found, days, settings.margin, least).target
    cores = np.where(usage.samples() > 0, target[0], np.nan)
    size = np.where(usage.memory_known, target[1], np.nan)
    return Sizes(
        cores,
        _in_proportion(cores, usage.current.cpu_request, usage.current.cpu_limit),
        size,
        _in_proportion(size, usage.current.memory_request, usage.current.memory_limit),
    )


def _peaks(usage: Usage, settings: VpaSettings) -> Floats:
    """Return the histogram of the members' daily peaks.

    A kill raises the peak of its day to what the member would have needed. A row's killed member is taken to
    be the one with the largest peak of that day.
    """
    length = usage.cores.shape[1]
    day = max(1, round(settings.memory_aggregation_interval_s / usage.interval_s))
    weights = np.zeros((usage.rows, MEMORY_BUCKETS.count))
    for begin in range(0, length, day):
        seen = np.flatnonzero(usage.present[:, begin : begin + day].any(axis=1))
        used = usage.memory_bytes[seen, begin : begin + day].max(axis=1)
        peak = used.copy()
        kills = usage.part(begin, begin + day).kills
        for row, limit in zip(kills.row.tolist(), kills.limit_bytes.tolist(), strict=True):
            own = np.flatnonzero(usage.row[seen] == row)
            if not own.size:
                continue  # killed at midnight, and gone since
            killed = own[used[own].argmax()]
            held = max(limit, used[killed])
            needed = max(held * settings.oom_bump_ratio, held + settings.oom_min_bump_bytes)
            peak[killed] = max(peak[killed], needed)
        age_s = (length - min(begin + day, length)) * usage.interval_s
        weight = np.full(len(seen), 2.0 ** (-age_s / settings.memory_half_life_s))
        weights += _histogram(usage, seen, MEMORY_BUCKETS, peak, weight)
    return weights


def _histogram(
    usage: Usage,
    member: NDArray[np.int64],
    buckets: Buckets,
    values: Floats,
    weights: Floats,
) -> Floats:
    cell = usage.row[member] * buckets.count + buckets.find(values)
    total = np.bincount(cell, weights, usage.rows * buckets.count)
    return np.asarray(total.reshape(usage.rows, buckets.count), np.float64)


def _in_proportion(request: Floats, set_request: Floats, set_limit: Floats) -> Floats:
    """Return limits in their present proportion to requests; no opinion where the present limit is unknown.

    A limit without a request becomes the request, as in the VPA (GetProportionalLimit), because Kubernetes
    takes such a limit for the request. A limit below its request is a mistake, and is removed.
    """
    ratio = np.divide(set_limit, set_request, out=np.ones(set_limit.shape), where=set_request > 0)
    limit = np.where(np.isfinite(set_limit) & (ratio >= 1), request * ratio, np.inf)
    return np.where(np.isnan(request) | np.isnan(set_limit), np.nan, limit)
