"""A policy as text: `NAME[:KEY=VALUE]…`, for example `static:factor=1.5` or `autopilot:update_interval_s=1`.

For: scenario files, the command line and the explorer, which all name policies in this way. Not for: the
policies themselves (control.allocator), whose settings say which parameters exist and why. A kind of
scenario may have policies of its own (lab.kinds); those have no parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from control.allocator import POLICIES, make, settings
from control.allocator.ports import Allocator
from lab import kinds
from lab.ask import guard
from twinbed import ScenarioError

Value = bool | int | float | str
"""A parameter's value, or one element of a parameter with several values."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy and the parameters that were given; the others keep the policy's defaults.

    name: key of control.allocator.POLICIES, or a policy of a kind's own
    parameters: (key, value) pairs sorted by key, values in the settings' own types, so that equal policies
    are equal however they were written
    """

    name: str
    parameters: tuple[tuple[str, Value | tuple[Value, ...]], ...] = ()

    @property
    def text(self) -> str:
        """The canonical text form, which `parse` reads back."""
        return ":".join([self.name, *(f"{key}={_text(value)}" for key, value in self.parameters)])

    def with_parameter(self, key: str, value: Value) -> PolicySpec:
        """Return the policy with one parameter set. Raises ScenarioError if the policy refuses it."""
        return _spec(self.name, dict(self.parameters) | {key: value})

    def make(self) -> Allocator:
        """Return a fresh allocator of this policy."""
        return make(self.name, dict(self.parameters))

    def resolved(self) -> dict[str, object]:
        """Return every parameter with its value, defaults included, in JSON types."""
        if self.name not in POLICIES:
            return {}
        values = asdict(settings(self.name, dict(self.parameters)))
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def parse(text: str) -> PolicySpec:
    """Return the policy that `text` names. Raises ScenarioError for an unknown policy, parameter or value."""
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


def _spec(name: str, parameters: Mapping[str, object]) -> PolicySpec:
    if name in kinds.policies_without_parameters():
        if parameters:
            raise ScenarioError(f"policy {name}: it has no parameters")
        return PolicySpec(name)
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
