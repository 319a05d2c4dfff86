"""Names of containers that another system runs: `docker:web`, `pod:shop`, `systemd:shop.service`, a path.

For: parsing such a name strictly, before any request about it. Not for: finding the container (finding.py).
Names come from users' files and over the network, and go into URLs and command lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from twinbed import ScenarioError

CGROUP = "cgroup"
"""Kind of a name that is the path of a cgroup."""

_WORD = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
_FORMS = {
    "docker": _WORD,
    "podman": _WORD,
    "compose": f"{_WORD}/{_WORD}",
    "pod": _WORD,
    "systemd": r"[A-Za-z0-9_@][A-Za-z0-9:_.\\@-]{0,240}\.(?:service|scope|slice)",
}
_EXAMPLES = "docker:web, podman:web, compose:shop/web, pod:shop, systemd:shop.service"


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A parsed name. kind: docker, podman, compose, pod, systemd or CGROUP; name: the part after the colon,
    or the path."""

    kind: str
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == CGROUP else f"{self.kind}:{self.name}"


def is_name(text: str) -> bool:
    """Return whether the text has the form KIND:NAME of a known kind, rather than of a path."""
    return text.partition(":")[0] in _FORMS


def parse(text: str) -> ContainerName:
    """Return the parsed name. Raise ScenarioError that names the expected form."""
    if text.startswith("/"):
        if ".." in text.split("/") or not text.isprintable() or len(text) > 1024 or not text.strip("/"):
            raise ScenarioError(f"container {text[:100]!r}: expected a cgroup's path, without '..'")
        return ContainerName(CGROUP, text)
    kind, _, name = text.partition(":")
    if kind not in _FORMS:
        raise ScenarioError(f"container {text[:100]!r}: expected a cgroup's path, or one of {_EXAMPLES}")
    if re.fullmatch(_FORMS[kind], name) is None or ".." in name:
        raise ScenarioError(f"container {text[:100]!r}: {name[:100]!r} is no name for {kind}; {_EXAMPLES}")
    return ContainerName(kind, name)
