"""The containers of one local run: their specifications, the mapping of ids to columns, and the limits in
force.

For: the state that the control loop and its record share. Not for: changing limits (executor.py). A container
that comes back gets a new id, because it is a new container to the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Bytes, Floats, History, Ids, Join
from testbed.containers.host.container import ContainerSpec
from testbed.containers.host.hosted import HostedContainer
from testbed.containers.host.identity import Identity
from testbed.containers.ports import GroupGoneError, HostGroup, Records
from twinbed import InvariantError, ScenarioError

Columns = NDArray[np.int64]
"""int64[k]: indices of containers in the order given."""

_MOST_KNOWN = 64
"""Number of id arrays whose columns are remembered. Usually fewer groups of containers than this report
together."""


@dataclass(frozen=True, slots=True)
class AttachedSpec:
    """A container that another system runs. name: as in ContainerSpec; attach: opens its cgroup, and raises
    GroupGoneError while it does not exist; it is called again every second."""

    name: str
    attach: Callable[[], HostGroup]


@dataclass(frozen=True, slots=True)
class Managed:
    """A container for the control loop to run.

    spec: the command, whose own limits are ignored, or the cgroup to attach to.
    app: index into the run's applications.
    peak_cores, peak_bytes: profiled maxima; None: not profiled.
    ready: polled until True before the run's time line begins, and after a restart before the container
        counts as up.
    begins_s, ends_s: times on the time line at which it joins and leaves, s; ends_s None: when its command
        ends for good.

    Raises ScenarioError for times that do not fit together.
    """

    spec: ContainerSpec | AttachedSpec
    app: int = 0
    peak_cores: float | None = None
    peak_bytes: int | None = None
    ready: Callable[[], bool] | None = None
    begins_s: float = 0.0
    ends_s: float | None = None

    def __post_init__(self) -> None:
        if not self.begins_s >= 0 or (self.ends_s is not None and not self.ends_s > self.begins_s):
            raise ScenarioError(
                f"container {self.spec.name}: present from {self.begins_s} to {self.ends_s} s, expected "
                "0 ≤ begins_s < ends_s"
            )


class Fleet:
    """The N containers of one run, in the order given.

    managed, groups: the containers to run, and the cgroup of each container that is ours; host_cores: the
    largest useful quota; profile: each container's use in its profile; None: not profiled; identity: see
    loop.Settings.
    containers: their state. app: int64[N]; quota_cores: float64[N], cores; inf: none; limit_bytes: int64[N],
    2^63 − 1 = none; up: bool[N]. These three are 0 or False for absent containers. request_cores: float64[N],
    cores, NaN = none.
    """

    def __init__(
        self,
        managed: Sequence[Managed],
        groups: Sequence[HostGroup | None],
        host_cores: float,
        profile: History | None = None,
        identity: Identity | None = None,
    ) -> None:
        self.managed, self._profile = tuple(managed), profile
        self.containers = tuple(
            HostedContainer(
                asked.spec.name,
                asked.spec if isinstance(asked.spec, ContainerSpec) else None,
                group,
                app=asked.app,
                index=index,
                ready=asked.ready,
                identity=identity,
            )
            for index, (asked, group) in enumerate(zip(managed, groups, strict=True))
        )
        self.host_cores = host_cores
        count = len(self.containers)
        self.app = np.array([container.app for container in self.containers], np.int64)
        self.quota_cores: Floats = np.zeros(count)
        self.limit_bytes: Bytes = np.zeros(count, np.int64)
        self.request_cores: Floats = np.full(count, np.nan)
        self.up: NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._column_of: dict[int, int] = {}
        self._known: dict[int, tuple[Ids, Columns, bool]] = {}

    def show(self, container: HostedContainer) -> None:
        """Copy a container's limits, and whether it is up, into the arrays."""
        column = container.index
        self.quota_cores[column] = container.quota_cores
        self.limit_bytes[column] = container.limit_bytes
        self.request_cores[column] = container.request_cores
        self.up[column] = container.up

    def add(self, containers: Sequence[HostedContainer], ids: Ids) -> None:
        """Note the ids of containers that joined; InvariantError if the allocator gave other ids."""
        if len(ids) != len(containers) or len(set(ids.tolist()) - self._column_of.keys()) != len(containers):
            raise InvariantError(f"{len(containers)} containers joined and the allocator gave other ids")
        for container, id_ in zip(containers, ids.tolist(), strict=True):
            self._column_of[id_] = container.index
        self._known.clear()

    def remove(self, id_: int) -> None:
        """Forget the id of a container that left."""
        del self._column_of[id_]
        self._known.clear()

    def attach(self, container: HostedContainer) -> bool:
        """Open an attached container's cgroup. Return False while the cgroup does not exist."""
        spec = self.managed[container.index].spec
        if isinstance(spec, AttachedSpec):
            if container.group is not None:
                container.group.remove()
            try:
                container.group = spec.attach()
            except GroupGoneError:
                container.group = None
                return False
        return True

    def members_only(self, records: Records, began_ns: int) -> tuple[Records, Columns]:
        """Return the records of members from after `began_ns`, and the members' columns."""
        columns, everybody = self._columns(records.ids)
        if everybody and min(records.end_ns.tolist()) > began_ns:
            return records, columns
        kept = (records.end_ns > began_ns) & (columns >= 0)
        some = Records(*(getattr(records, field.name)[kept] for field in fields(Records)))
        return some, columns[kept]

    def _columns(self, ids: Ids) -> tuple[Columns, bool]:
        """Return the columns of ids, −1 for those that left, and whether none has left. For an array that is
        not writeable, the look-up is cached."""
        known = self._known.get(id(ids))
        if known is not None:
            return known[1:]
        columns = np.array([self._column_of.get(number, -1) for number in ids.tolist()], np.int64)
        everybody = bool((columns >= 0).all())
        if not ids.flags.writeable:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            # Keeping the array itself ensures that no other array gets its address.
            self._known[id(ids)] = ids, columns, everybody
        return columns, everybody

    def joining(self, containers: Sequence[HostedContainer]) -> Join:
        """Return the `Join` of newcomers. Peaks are included if all of them have one."""
        chosen = [self.managed[container.index] for container in containers]
        cores = [managed.peak_cores for managed in chosen]
        sizes = [managed.peak_bytes for managed in chosen]
        columns, profile = [container.index for container in containers], self._profile
        if profile is not None:
            usage, used = profile.usage_cores[:, columns], profile.memory_bytes[:, columns]
            profile = History(usage, used, profile.period_s)
        return Join(
            np.array([managed.app for managed in chosen], np.int64),
            np.full(len(chosen), self.host_cores),
            None if None in cores else np.array(cores, np.float64),
            None if None in sizes else np.array(sizes, np.int64),
            profile,
            np.zeros(len(chosen), np.int64),
        )
