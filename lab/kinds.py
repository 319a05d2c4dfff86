"""The table of the kinds of scenario.

For: finding the kind of a scenario, of a section, of a policy and of a stored run. Not for: the methods of a
kind, which are `Kind` in lab.ask.kind. A new kind is a folder with a kind.py and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lab.ask.kind import Kind
from lab.cloud.kind import Cloud
from lab.cluster.kind import Cluster
from lab.containers.kind import Containers
from lab.fabric.kind import Fabric

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario

KINDS: tuple[Kind, ...] = (Containers(), Fabric(), Cluster(), Cloud())


def sections() -> list[str]:
    """Return the sections that mark a scenario's kind. Every scenario has exactly one of them."""
    return [section for kind in KINDS for section in kind.sections]


def paths() -> list[str]:
    """Return the dotted keys of scenario files whose values may be paths."""
    return [path for kind in KINDS for path in kind.paths]


def words() -> list[str]:
    """Return the dotted keys of scenario files that only describe other keys, and change no figure."""
    return [key for kind in KINDS for key in kind.words]


def policies_without_parameters() -> list[str]:
    """Return the policies that belong to one kind and are not allocators."""
    return [policy for kind in KINDS for policy in kind.policies]


def tables() -> list[str]:
    """Return the names of all tables that runs of any kind store."""
    return list(dict.fromkeys(table for kind in KINDS for table in (*kind.tables, *kind.optional_tables)))


def with_section(section: str) -> Kind:
    """Return the kind of scenarios that have this section."""
    return next(kind for kind in KINDS if section in kind.sections)


def groups() -> list[str]:
    """Return the sorts of policies of a user's own that scenarios may name."""
    return [kind.group for kind in KINDS if kind.group]


def with_policy(name: str, group: str = "") -> Kind:
    """Return the kind of scenarios for this policy. group: sort of a user's own policy."""
    if group:
        return next(kind for kind in KINDS if kind.group == group)
    own = [kind for kind in KINDS if name in kind.policies]
    return own[0] if own else next(kind for kind in KINDS if not kind.policies)


def of(scenario: Scenario) -> Kind:
    """Return the kind of a scenario."""
    return next(kind for kind in KINDS if isinstance(scenario, kind.scenario_model()))


def of_manifest(manifest: Mapping[str, Any]) -> Kind | None:
    """Return the kind of a stored run, known by a condition that only scenarios of one kind have; None if
    unknown."""
    from lab.ask.scenario import Scenario

    spec = manifest.get("spec", {})
    for kind in KINDS:
        if any(key in spec for key in kind.scenario_model().model_fields if key not in Scenario.model_fields):
            return kind
    return None
