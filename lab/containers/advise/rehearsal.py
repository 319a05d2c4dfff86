"""Rehearses settings: the twin replays containers under them.

For: `Rehearsal`, over one history and several seeds. Not for: choosing settings (control.advice).

Three replays make one outcome. Throttling is that of the CPU limit, on a host with CPU to spare. OOM events
and restarts are those of the memory limit. Late work is the work that would be late on a host without spare
CPU, where a container gets its request and no more. Without a CPU limit, this is all that a container is
guaranteed, so requests are compared by it. Where the containers' hosts are given, one replay on them gives
all three, and requests are weights. Seeds draw how use varies within an interval of the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from control.advice.model import Sizes, Usage
from control.allocator.model import Floats
from control.allocator.shares import DEFAULT_WEIGHT, SHARES_PER_CORE, shares
from lab.containers.advise.histories import PERIOD_S, Told
from lab.containers.input.sections import Price
from traces.refine import refine
from traces.schema import UsageTrace
from twin.containers.model import Machine
from twin.containers.steady import NO_BYTES, Lived, Load, live
from twin.containers.steady_hosts import Crowd, live_on_hosts
from twinbed import ScenarioError

_SHAPES, _SHAPE_CELLS = 64, 8_000_000
"""Different shapes of bursts that intervals have, and most periods of all shapes: days have fewer shapes."""

_SEARCHED = 1e8
"""Container-periods that a search for settings replays at a time. Of a longer history, one of every k
stretches is replayed."""

_STRETCH, _STRETCHES = 20, 16
"""Most intervals of a stretch, and least number of stretches, which are shorter where they would be fewer."""

_GOLDEN = (5**0.5 - 1) / 2
"""Share of a group of stretches by which the chosen one moves from group to group. With the golden ratio, the
chosen ones spread evenly over the day, where equal distances could meet the same hour of every day."""

_NO_WORK_S = 1e-12
"""CPU time below which no work arrived, s."""

_GIB = 1 << 30
_DAY_H = 24.0


@dataclass(frozen=True, slots=True)
class Fates:
    """Outcomes of all rows, float64[S, R], a line per seed; NaN: undefined.

    The fields are those of lab.containers.advise.model.Outcome, and sums for the fleet's shares. late_s,
    arrived_s: CPU work, s. throttled, periods: periods under a CPU limit, 0 without one.
    """

    throttled_share: Floats
    oom_events: Floats
    restarts: Floats
    late_share: Floats
    cpu_slack_cores: Floats
    memory_slack_bytes: Floats
    money_per_day: Floats
    late_s: Floats
    arrived_s: Floats
    throttled: Floats
    periods: Floats


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts on which containers are placed in turn. count: number of hosts. cores: CPUs of each host."""

    count: int
    cores: float

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.cores < np.inf:
            raise ScenarioError(f"{self}: expected at least one host, and a number of cores above 0")

    def __str__(self) -> str:
        return f"{self.count} host{'s' * (self.count != 1)} of {self.cores:g} cores"


class Rehearsal:
    """One history, its refinements by seed, and replays of settings on it.

    hosts: the hosts that the containers share in `fates`. None: each container has a host, and late work is
    the work that would be late on a full host. Searches always rehearse each container by itself.
    """

    def __init__(
        self,
        told: Told,
        machine: Machine,
        price: Price,
        seeds: tuple[int, ...],
        hosts: Hosts | None = None,
    ) -> None:
        self._told, self._machine, self._price, self._hosts = told, machine, price, hosts
        usage = told.usage
        self._memory = np.rint(usage.memory_bytes).astype(np.int64)
        self._parts = max(1, round(usage.interval_s / PERIOD_S))
        self._seeds = seeds
        self._lives: dict[tuple[int, bytes], Lived] = {}
        self.highest = usage.by_row(usage.cores.max(axis=1) * self._bursts(seeds[0]).max() * 1.01, np.maximum)

    @property
    def usage(self) -> Usage:
        """The history."""
        return self._told.usage

    @property
    def running(self) -> Floats:
        """Replicas that ran on average, float64[R]."""
        return self._told.running

    @property
    def rates(self) -> tuple[float, float]:
        """Prices of a core and of a byte for an hour."""
        return self._price.cpu_core_hour, self._price.memory_gib_hour / _GIB

    def window(self, begin: float, end: float) -> Rehearsal | None:
        """Return the rehearsal of a part of the history, shares of its length; None: it has no interval."""
        first, last = (int(share * self._told.usage.cores.shape[1]) for share in (begin, end))
        if last <= first:
            return None
        return Rehearsal(self._told.part(first, last), self._machine, self._price, self._seeds[:1])

    def most_requested(self, cores: Floats) -> Floats:
        """Return the most CPU that is requested at a time on each host, cores: float64[H], of hosts that have
        containers. cores: by row."""
        usage = self._told.usage
        count = min(self._hosts.count, len(usage.row)) if self._hosts else 1
        asked = usage.present * np.nan_to_num(cores, posinf=0.0)[usage.row][:, None]
        return np.array([asked[first::count].sum(axis=0).max(initial=0.0) for first in range(count)])

    def late(self) -> Callable[[Floats], Floats]:
        """Return a rehearsal of the whole history for searches: quotas by row → late CPU work per time,
        cores."""
        load = self._searched(0, 1)
        length_s = load.cores.shape[1] * load.interval_s

        def late(quota: Floats) -> Floats:
            lived = self._live(load, quota, np.full_like(quota, np.inf))
            return np.asarray(self._told.usage.by_row(lived.late_s) / length_s, np.float64)

        return late

    def part(self, begin: float, end: float) -> Callable[[Floats], Floats]:
        """Return a rehearsal of a part of the history (shares of its length) for searches.

        It takes quotas by row and returns the shares of periods in which they do not suffice.
        """
        load = self._searched(begin, end)

        def short(quota: Floats) -> Floats:
            lived = self._live(load, quota, np.full_like(quota, np.inf))
            usage = self._told.usage
            return usage.by_row(lived.throttled) / np.maximum(usage.by_row(lived.periods), 1)

        return short

    def _searched(self, begin: float, end: float) -> Load:
        """Return the load for the search's replay of a part of the history."""
        length = self._told.usage.cores.shape[1]
        first = min(int(begin * length), length - 1)
        chosen = np.arange(first, max(int(end * length), first + 1))
        every = max(1, -(-(len(chosen) * len(self._memory) * self._parts) // int(_SEARCHED)))
        stretch = max(1, min(_STRETCH, len(chosen) // (every * _STRETCHES)))
        group, place = np.divmod((chosen - first) // stretch, every)
        chosen = chosen[place == (every * (group * _GOLDEN % 1)).astype(np.int64)]
        load = self._load(self._seeds[0])
        return replace(
            load,
            cores=np.ascontiguousarray(load.cores[:, chosen]),
            memory_bytes=np.ascontiguousarray(load.memory_bytes[:, chosen]),
            present=np.ascontiguousarray(load.present[:, chosen]),
            shape=np.ascontiguousarray(load.shape[:, chosen]),
        )

    def fates(self, sizes: Sizes, progress: Callable[[float], None] | None = None) -> Fates:
        """Return the outcomes of all rows in a replay of the history with these settings."""
        usage, price = self._told.usage, self._price
        cores, size = sizes.reserved_cores, sizes.reserved_bytes
        memory = np.where(usage.memory_known, size, 0.0)
        hourly = cores * price.cpu_core_hour + memory / _GIB * price.memory_gib_hour
        lived = []
        for index, seed in enumerate(self._seeds):
            lived.append(self._lived(sizes, cores, seed))
            if progress is not None:
                progress((index + 1) / len(self._seeds))

        def alike(values: Floats) -> Floats:
            return np.tile(values, (len(self._seeds), 1))

        return Fates(
            **{name: np.array([own[name] for own in lived]) for name in lived[0]},
            cpu_slack_cores=alike(self._slack(usage.cores, cores)),
            memory_slack_bytes=alike(
                np.where(usage.memory_known, self._slack(usage.memory_bytes, size), np.nan)
            ),
            money_per_day=alike(hourly * _DAY_H * self._told.running),
        )

    def _lived(self, sizes: Sizes, cores: Floats, seed: int) -> dict[str, Floats]:
        """Return the part of Fates that depends on the seed, float64[R] each. cores: reserved cores."""
        usage = self._told.usage
        load = self._load(seed)
        limited, promised, told = np.isfinite(sizes.cpu_limit), cores > 0, ~np.isnan(cores)
        quota = np.where(limited, sizes.cpu_limit, np.inf)
        if self._hosts is None:
            lived = self._live(load, quota, sizes.memory_limit)
            short = self._short(load, seed, np.where(promised, cores, np.inf))
        else:
            lived = short = self._live(load, quota, sizes.memory_limit, self._crowd(self._hosts, cores))
        known = ~np.isnan(sizes.memory_limit) & usage.memory_known
        late_s, arrived_s = usage.by_row(short.late_s), usage.by_row(short.arrived_s)
        if self._hosts is None:
            # A full host leaves nothing to a container that requests nothing.
            late_s = np.where(promised, late_s, arrived_s)
        throttled, periods = (
            np.where(limited, usage.by_row(counts), 0.0) for counts in (lived.throttled, lived.periods)
        )
        return {
            "throttled_share": np.where(limited, throttled / np.maximum(periods, 1), np.nan),
            "throttled": throttled,
            "periods": periods,
            "oom_events": np.where(known, usage.by_row(lived.oom_events), np.nan),
            "restarts": np.where(known, usage.by_row(lived.restarts), np.nan),
            "late_share": np.where(told, late_s / np.maximum(arrived_s, _NO_WORK_S), np.nan),
            "late_s": np.where(told, late_s, np.nan),
            "arrived_s": arrived_s,
        }

    def _slack(self, used: Floats, reserved: Floats) -> Floats:
        """Return the reserved but unused cores, mean over the intervals of all members, float64[R]."""
        usage = self._told.usage
        free = np.maximum(reserved[usage.row][:, None] - used, 0.0)
        total = usage.by_row(np.where(usage.present, free, 0.0).sum(axis=1))
        return total / np.maximum(usage.samples(), 1)

    def _crowd(self, hosts: Hosts, cores: Floats) -> Crowd:
        """Return the members' hosts and their weights by their requests; an unknown request has the kernel's
        default weight."""
        weight = shares(np.nan_to_num(cores)) * (DEFAULT_WEIGHT / SHARES_PER_CORE)
        of_row = np.where(np.isnan(cores), DEFAULT_WEIGHT, weight)
        member = np.arange(len(self._memory))
        return Crowd(member % hosts.count, hosts.cores, of_row[self._told.usage.row])

    def _live(self, load: Load, quota: Floats, limit: Floats, crowd: Crowd | None = None) -> Lived:
        """Replay with settings by row; inf and NaN mean none. crowd: None for hosts with CPU to spare."""
        row = self._told.usage.row
        bounded = np.isfinite(limit)
        whole = np.where(bounded, limit, 0.0).astype(np.int64)
        whole[~bounded] = NO_BYTES
        if crowd is not None:
            return live_on_hosts(load, quota[row], whole[row], self._machine, crowd)
        return live(load, quota[row], whole[row], self._machine)

    def _short(self, load: Load, seed: int, quota: Floats) -> Lived:
        """Replay with requests as quotas. Candidates with the same requests share the replay."""
        key = seed, quota.tobytes()
        if key not in self._lives:
            self._lives[key] = self._live(load, quota, np.full_like(quota, np.inf))
        return self._lives[key]

    def _load(self, seed: int) -> Load:
        usage = self._told.usage
        bursts = self._bursts(seed)
        random = np.random.default_rng(np.random.SeedSequence((seed, 1)))
        shape = random.integers(0, len(bursts), usage.cores.shape, np.uint8)
        return Load(usage.cores, self._memory, usage.present, usage.interval_s, bursts, shape)

    def _bursts(self, seed: int) -> Floats:
        return shapes(self._parts, self._told.usage.interval_s, seed)


@cache
def shapes(parts: int, interval_s: float, seed: int) -> Floats:
    """Return shapes of bursts within an interval, float64[K, parts], of mean one (traces.refine)."""
    if parts == 1:
        return np.ones((1, 1))
    count = min(_SHAPES, max(1, _SHAPE_CELLS // parts))
    level = np.ones((count, 1))
    flat = UsageTrace(
        ("shape",), ("shape",), 0.0, interval_s, level, np.zeros_like(level), np.ones_like(level, np.bool_)
    )
    fine = refine(flat, interval_s / parts, np.random.SeedSequence((seed, 0)))
    return np.ascontiguousarray(fine.cpu_cores.reshape(count, parts))
