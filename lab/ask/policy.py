"""A policy as text: `NAME[:KEY=VALUE]…`, for example `static:factor=1.5` or `autopilot:update_interval_s=1`.

For: scenario files, the command line and the explorer, which all name policies in this way. A policy of the
user's own is `FILE.py:CLASS(KEY=VALUE, …)` or an entry point (twinbed.own). Not for: the policies themselves
(control.allocator), whose settings describe the parameters. A kind of scenario may have policies of its own
(lab.kinds); those have no parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from control.allocator import POLICIES, make, settings
from lab import kinds
from lab.ask import guard
from twinbed import ScenarioError
from twinbed.own import Own, find

Value = bool | int | float | str
"""A parameter's value, or one element of a parameter with several values."""


_MOST_KEPT = 1_000
"""Most texts whose policies are kept."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy and its given parameters. The other parameters keep the policy's defaults.

    name: key of control.allocator.POLICIES, a policy of a kind's own, or the class of the user's own
    parameters: (key, value) pairs sorted by key, values in the settings' own types, so that equal policies
        are equal however they were written; for the user's own policy, `own` has them
    own: the user's own code, None for a shipped policy
    """

    name: str
    parameters: tuple[tuple[str, Value | tuple[Value, ...]], ...] = ()
    own: Own | None = None

    @property
    def text(self) -> str:
        """The canonical text form, which `parse` reads back."""
        if self.own is not None:
            return self.own.text
        return ":".join([self.name, *(f"{key}={_text(value)}" for key, value in self.parameters)])

    @property
    def label(self) -> str:
        """The text form without the folder of a file, for manifests and tables."""
        return self.text if self.own is None else self.own.label

    def with_parameter(self, key: str, value: Value) -> PolicySpec:
        """Return the policy with one parameter set. Raises ScenarioError if the policy refuses it."""
        if self.own is not None:
            return replace(self, own=self.own.with_argument(key, value))
        return _spec(self.name, dict(self.parameters) | {key: value})

    def with_file_at(self, places: Mapping[str, str]) -> PolicySpec:
        """Return the policy with its file at another path. places: path → path with the same content."""
        if self.own is None or self.own.place not in places:
            return self
        return replace(self, own=replace(self.own, place=places[self.own.place]))

    def make(self, *given: object) -> Any:
        """Return a new allocator of this policy, or a scheduler of the user's own.

        given: first arguments of the constructor of the user's own class (twinbed.own.PORTS).
        """
        return make(self.name, dict(self.parameters)) if self.own is None else self.own.make(*given)

    def identity(self) -> dict[str, object]:
        """Return the policy's part of a run's identity, in JSON types."""
        code = {} if self.own is None else {"code_sha256": self.own.sha256}
        return {"name": self.name, "parameters": self.resolved(), **code}

    def resolved(self) -> dict[str, object]:
        """Return every parameter with its value, defaults included, in JSON types."""
        if self.own is not None:
            return dict(self.own.parameters)
        if self.name not in POLICIES:
            return {}
        checked = settings(self.name, dict(self.parameters))
        values = {entry.name: getattr(checked, entry.name) for entry in fields(checked)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def parse(text: str) -> PolicySpec:
    """Return the policy that `text` names. Raises ScenarioError for an unknown policy, parameter or value."""
    mine = find(text, *kinds.groups())
    if mine is not None:
        guard.usable(dict(mine.arguments), f"policy {mine.label}")
        return PolicySpec(mine.name, own=mine)
    return _shipped(text)


@lru_cache(_MOST_KEPT)
def _shipped(text: str) -> PolicySpec:
    """Return the policy of twinbed's own that a text names; the points of a sweep repeat the same few."""
    name, *pairs = text.split(":")
    parameters: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if not (key and value):
            raise ScenarioError(f"policy {text!r}: {pair!r} is not of the form KEY=VALUE")
        if key in parameters:
            raise ScenarioError(f"policy {text!r}: {key} is given twice")
        parameters[key] = value
    return _spec(name, parameters)


def names() -> list[str]:
    """Return the sorted names of the allocators, which are the policies for containers."""
    return sorted(POLICIES)


def files(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the files of the user's own policies among these texts."""
    named = [find(text, *kinds.groups()) for text in texts]
    return tuple(mine.place for mine in named if mine is not None and mine.place)


def _spec(name: str, parameters: Mapping[str, object]) -> PolicySpec:
    if name in kinds.policies_without_parameters():
        if parameters:
            from control.scheduler import POLICIES as SCHEDULERS

            family = SCHEDULERS[name].family if name in SCHEDULERS else ""
            keys = ", ".join(f"cluster.settings.{family}.{key}" for key in parameters)
            cure = f" in its name; set {keys}" if family else ""
            raise ScenarioError(f"policy {name}: it has no parameters{cure}")
        return PolicySpec(name)
    if name not in POLICIES:
        known = {*POLICIES, *kinds.policies_without_parameters()} - {"none"}
        close = get_close_matches(name, sorted(known))
        cure = f"close: {', '.join(close)}" if close else "`twinbed policies` lists them"
        raise ScenarioError(f"no policy {name!r}; {cure}")
    checked = settings(name, parameters)
    given = {key: getattr(checked, key) for key in sorted(parameters)}
    return PolicySpec(name, tuple(guard.usable(given, f"policy {name}").items()))


def _text(value: object) -> str:
    """Return a setting's value as `settings` reads it back: `true`, `2` for 2.0, `0.1/0.2` for several."""
    if isinstance(value, tuple):
        return "/".join(_text(element) for element in value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
