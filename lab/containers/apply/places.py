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
    """This machine. driver: of its cgroups, None = found out."""

    kind = "host"

    def __init__(self, driver: Driver | None = None) -> None:
        self._driver = driver or detect()

    def candidates(self) -> list[Candidate]:
        """See Places."""
        return [
            Candidate(found.name, found.container.name, found.container.labels, found.container.pod)
            for found in finding.everyone(self._driver)
            if found.container is not None
        ]

    def named(self, text: str) -> list[str]:
        """See Places."""
        return [found.name for found in finding.find(names.parse(text), self._driver)]

    def target(self, name: str) -> LimitedContainer:
        """See Places."""
        (found, *_) = finding.find(names.parse(name), self._driver)
        return LimitedContainer(found, self._driver)

    def close(self) -> None:
        """See Places: nothing stays open."""
