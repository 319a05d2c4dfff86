"""Max-min fair sharing, and the hosts whose CPUs may be short.

For: `max_min`, the one rule of sharing, and `Hosts`, the containers of a replay that share a host. Not for:
simulating containers (cfs.py), nor the hosts of the request engine (requests/engine/).

Source: max-min fairness with weights by progressive filling (Bertsekas & Gallager, Data Networks, 6.5.2),
which is what CFS gives to groups that stay runnable: time in proportion to cpu.weight (kernel/sched/fair.c).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twin.containers.compiled import kernel
from twin.containers.model import Floats

Whole = NDArray[np.int64]


class Hosts(NamedTuple):
    """The H crowded hosts, whose M containers can keep more CPUs busy than the host has.

    Other hosts give every container the CPUs that it wants, and are not listed.

    cores: float64[H], CPUs of the host. first: int64[H+1], index of its first member.
    members: int64[M], columns host by host. weight: float64[M], cpu.weight of each member.
    of, place: int64[N], the host of each column, and its index among the members; −1: its host is not
        crowded.
    most: float64[H], the most CPUs that the host's members may want until the period's end; −1: not computed
    yet. wanted, given: float64[M], CPUs that members want (at most) and get.
    """

    cores: Floats
    first: Whole
    members: Whole
    weight: Floats
    of: Whole
    place: Whole
    most: Floats
    wanted: Floats
    given: Floats


def crowded_hosts(host: Whole, host_cores: Floats, cap: Floats, weight: Floats) -> Hosts:
    """Return the hosts that may be short of CPUs.

    host: int64[N], the host of each container. host_cores: float64[N], CPUs of that host. cap: float64[N],
    CPUs that the container can keep busy. weight: float64[N] > 0, the container's cpu.weight.
    """
    _, example, index = np.unique(host, return_index=True, return_inverse=True)
    cores = host_cores[example]
    crowded = np.bincount(index, cap, len(cores)) > cores
    members = np.flatnonzero(crowded[index])
    members = members[np.argsort(index[members], kind="stable")]
    of = np.where(crowded, np.cumsum(crowded) - 1, -1)[index]
    hosts = np.count_nonzero(crowded)
    place = np.full(len(host), -1, np.int64)
    place[members] = np.arange(len(members))
    room = np.zeros((2, len(members)))
    return Hosts(
        cores=cores[crowded],
        first=np.searchsorted(of[members], np.arange(hosts + 1)),
        members=members,
        weight=weight[members],
        of=of,
        place=place,
        most=np.full(hosts, -1.0),
        wanted=room[0],
        given=room[1],
    )


@kernel
def max_min(wanted: Floats, weight: Floats, capacity: float, given: Floats) -> None:
    """Share `capacity` ≥ 0 max-min fairly: write each share into `given` (float64[n]).

    wanted: float64[n] ≥ 0, weight: float64[n] > 0. No share exceeds what is wanted. All shares that are
    smaller than wanted are equal per weight, and no share is larger per weight. If any share is smaller than
    wanted, the whole capacity is used.
    """
    given[:] = -1.0
    left, undecided = capacity, len(wanted)
    while undecided > 0:
        weights = 0.0
        for i in range(len(wanted)):
            if given[i] < 0.0:
                weights += weight[i]
        level = max(left, 0.0) / weights
        before = undecided
        for i in range(len(wanted)):
            if given[i] < 0.0 and wanted[i] <= level * weight[i]:
                given[i] = wanted[i]
                left -= wanted[i]
                undecided -= 1
        if undecided == before:
            for i in range(len(wanted)):
                if given[i] < 0.0:
                    given[i] = level * weight[i]
            return
