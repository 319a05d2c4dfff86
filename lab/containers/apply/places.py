"""The containers of this machine, as applying needs them.

For: Docker, Podman, systemd units and bare cgroups. Not for: how their limits are read and written
(testbed.containers.attach).
"""

from __future__ import annotations

from lab.containers.apply.ports import Candidate
from testbed.containers.attach import finding, names
from testbed.containers.attach.limits import LimitedContainer
from testbed.containers.cgroup.drivers import Driver, detect


class Host:
    """This machine. driver: driver of its cgroups; None: the driver that `detect` returns."""

    kind = "host"

    def __init__(self, driver: Driver | None = None) -> None:
        self._driver = driver or detect()
        self._finder = finding.Finder(self._driver)

    def candidates(self) -> list[Candidate]:
        """See Places."""
        return [
            Candidate(group.name, group.container.name, group.container.labels, group.container.pod)
            for group in self._finder.everyone()
            if group.container is not None
        ]

    def named(self, text: str) -> list[str]:
        """See Places."""
        return [group.name for group in self._finder.find(names.parse(text))]

    def target(self, name: str) -> LimitedContainer:
        """See Places."""
        return LimitedContainer(self._finder.again(name), self._driver)

    def close(self) -> None:
        """See Places: nothing stays open."""
