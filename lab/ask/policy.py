"""A policy as text: `NAME[:KEY=VALUE]…`, e.g. `static:factor=1.5` or `autopilot:update_interval_s=1`.

For: scenario files, the command line and the explorer, which all name policies this way; a fabric's schemes
are named so too. Not for: the policies themselves (control.allocator), whose settings say which parameters
exist and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from control.allocator import POLICIES, make, settings
from control.allocator.ports import Allocator
from twin.fabric.model import Scheme
from twinbed import ScenarioError

SCHEMES = tuple(str(scheme) for scheme in Scheme)
"""How an edge fault is met; what a scenario with a fabric names as its policies."""

Value = bool | int | float | str
"""A parameter's value, or one of several."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy and the parameters given for it; what is not given keeps the policy's default.

    name: key of control.allocator.POLICIES, or one of SCHEMES, which have no parameters; parameters: (key,
    value) pairs sorted by key, each value of the settings' own type, so that equal policies are equal however
    they were written.
    """

    name: str
    parameters: tuple[tuple[str, Value | tuple[Value, ...]], ...] = ()

    @property
    def text(self) -> str:
        """The canonical text form; `parse` reads it back."""
        return ":".join([self.name, *(f"{key}={_text(value)}" for key, value in self.parameters)])

    def with_parameter(self, key: str, value: Value) -> PolicySpec:
        """The same policy with one parameter set; raises ScenarioError when the policy refuses it."""
        return _spec(self.name, dict(self.parameters) | {key: value})

    def make(self) -> Allocator:
        """A fresh allocator of this policy."""
        return make(self.name, dict(self.parameters))

    def resolved(self) -> dict[str, object]:
        """Every parameter with the value it will have, defaults written out; JSON types only."""
        if self.name in SCHEMES:
            return {}
        values = asdict(settings(self.name, dict(self.parameters)))
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def parse(text: str) -> PolicySpec:
    """The policy that `text` names; raises ScenarioError for an unknown policy, parameter or value."""
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
    """All policies there are, sorted."""
    return sorted(POLICIES)


def _spec(name: str, parameters: Mapping[str, object]) -> PolicySpec:
    if name in SCHEMES:
        if parameters:
            raise ScenarioError(f"policy {name}: a scheme has no parameters; its delays are in fabric.values")
        return PolicySpec(name)
    checked = settings(name, parameters)
    return PolicySpec(name, tuple((key, getattr(checked, key)) for key in sorted(parameters)))


def _text(value: object) -> str:
    """A setting's value as `settings` reads it back: `true`, `2` for 2.0, `0.1/0.2` for several."""
    if isinstance(value, tuple):
        return "/".join(_text(each) for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
