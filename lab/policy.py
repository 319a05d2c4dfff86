"""A policy as text: `NAME[:KEY=VALUE]…`, e.g. `static:factor=1.5` or `autopilot:update_interval_s=1`.

For: scenario files, the command line and the explorer, which all name policies this way. Not for: the
policies themselves (control.allocator), whose settings say which parameters exist and why.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from control.allocator import POLICIES, make
from control.allocator.ports import Allocator
from twinbed import ScenarioError

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy and the parameters given for it; what is not given keeps the policy's default.

    name: key of control.allocator.POLICIES; parameters: (key, value) pairs, sorted by key.
    """

    name: str
    parameters: tuple[tuple[str, Value], ...] = ()

    @property
    def text(self) -> str:
        """The canonical text form: parameters sorted by name, as given."""
        return ":".join([self.name, *(f"{key}={_text(value)}" for key, value in self.parameters)])

    def with_parameter(self, key: str, value: Value) -> PolicySpec:
        """The same policy with one parameter set; raises ScenarioError when the policy refuses it."""
        return _checked(self.name, dict(self.parameters) | {key: value})

    def make(self) -> Allocator:
        """A fresh allocator of this policy."""
        return make(self.name, dict(self.parameters))

    def resolved(self) -> dict[str, object]:
        """Every parameter with the value it will have, defaults written out; JSON types only."""
        settings_type, _ = POLICIES[self.name]
        defaults = settings_type()
        given = dict(self.parameters)
        values = {spec.name: given.get(spec.name, getattr(defaults, spec.name)) for spec in fields(defaults)}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def parse(text: str) -> PolicySpec:
    """The policy that `text` names; raises ScenarioError for an unknown policy, parameter or value."""
    name, *pairs = text.split(":")
    parameters: dict[str, Value] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise ScenarioError(f"policy {text!r}: {pair!r} is not of the form KEY=VALUE")
        if key in parameters:
            raise ScenarioError(f"policy {text!r}: {key} is given twice")
        parameters[key] = _value(value)
    return _checked(name, parameters)


def names() -> list[str]:
    """All policies there are, sorted."""
    return sorted(POLICIES)


def _checked(name: str, parameters: dict[str, Value]) -> PolicySpec:
    make(name, parameters)
    return PolicySpec(name, tuple(sorted(parameters.items())))


def _value(text: str) -> Value:
    """Numbers and booleans as such, so that `1`, `1.0` and `true` mean the same however they come."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
