"""Watches containers whose limits have changed, and decides when the changes must be taken back.

For: comparing each container's counters since the change, also over restarts, with the conditions. Not for:
taking back (carrying.py). A container that restarts has a new cgroup, whose counters begin at zero and whose
limits may be the old ones: a callback then sets them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lab.containers.apply.conditions import Condition, Happened
from lab.containers.apply.ports import Places
from testbed.containers.attach.limits import Counters
from testbed.containers.ports import GroupGoneError

GONE_S = 15.0
"""Time for which a container may be missing before the watch is given up, s: a restart takes some seconds."""

_NOTHING = Counters(0, 0, 0, 0, "")


@dataclass(slots=True)
class _Seen:
    """One container.

    base: its counters when its present cgroup was first seen. last: the newest counters, None before the
        first ones.
    before: sums of former cgroups. restarts: number of restarts seen. limited: whether its present cgroup has
        the limits.
    gone_s: time at which the container went missing, s.
    """

    base: Counters = _NOTHING
    last: Counters | None = None
    before: tuple[int, int, int] = (0, 0, 0)
    restarts: int = 0
    limited: bool = True
    gone_s: float | None = None

    def take(self, now: Counters) -> None:
        """Take new counters, and note whether it was restarted since the last ones."""
        if self.last is None or now.incarnation != self.last.incarnation:
            self.before = self._sums()
            self.restarts += 1 if self.last is None else max(1, now.restarts - self.last.restarts)
            self.base, self.limited = _NOTHING, False
        self.last = now

    def happened(self) -> Happened:
        """Return the container's counts since the change."""
        return Happened(*self._sums(), self.restarts)

    def _sums(self) -> tuple[int, int, int]:
        periods, throttled, oom = self.before
        last, base = self.last or _NOTHING, self.base
        return (
            periods + last.periods - base.periods,
            throttled + last.throttled - base.throttled,
            oom + last.oom_kills - base.oom_kills,
        )


class Watch:
    """A watch over containers, each from its `add` on.

    on_restart: function called with the full name of a container that restarted, and again while it raises
    GroupGoneError. happened: receives each container's counters, by full name.
    """

    def __init__(
        self,
        places: Places,
        conditions: Sequence[Condition],
        on_restart: Callable[[str], None],
        happened: dict[str, Happened],
    ) -> None:
        self._places, self._conditions, self._on_restart = places, conditions, on_restart
        self._happened = happened
        self._seen: dict[str, _Seen] = {}

    def add(self, targets: Iterable[str]) -> None:
        """Watch these containers from now on, too."""
        for name in targets:
            try:
                counters = self._places.target(name).counters()
            except GroupGoneError:
                # The container is already restarting. The time that this takes is judged as for any other
                # restart.
                self._seen[name] = _Seen()
            else:
                self._seen[name] = _Seen(counters, counters)

    def look(self, now_s: float, *, last: bool) -> str | None:
        """Check all containers. Return why the changes must be taken back, or None. last: the watch ends now.
        Raise BackendError if a container cannot be read."""
        for name, seen in self._seen.items():
            try:
                seen.take(self._places.target(name).counters())
                if not seen.limited:
                    self._on_restart(name)
                    seen.limited = True
            except GroupGoneError:
                seen.gone_s = now_s if seen.gone_s is None else seen.gone_s
                if last or now_s - seen.gone_s >= GONE_S:
                    return f"{name} is gone"
                continue
            seen.gone_s = None
            happened = self._happened[name] = seen.happened()
            for condition in self._conditions:
                why = condition.met(happened, last=last)
                if why is not None:
                    return f"{name}: {why}"
        return None
