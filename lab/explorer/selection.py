"""The user's choices on a page, as a value that converts to the page's address and back.

For: the form of choices in the session and in the URL. Not for: widgets (the pages), or the check that a
recording, an application or a run exists. An address is text that any user may have typed: for a value that
cannot be used, the default is used and one line is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, TypeVar

from lab.ask import policy
from lab.charts.services import PERCENTILES
from lab.containers.input.sections import DEFAULT_POLICIES, Price
from lab.containers.input.services.arrivals import PRESETS
from twinbed import ScenarioError

MAX_POLICIES = 8
"""Largest number of policies: the number of colours of the palette."""
MAX_RUNS = 24


@dataclass(frozen=True)
class Choices:
    """The choices on every page that runs something.

    policies: text forms; budget: Ω and M as a multiple of the sum of profiled peaks; cpu_price, memory_price:
    per core-hour and GiB-hour; container: the container that is shown; runs: ids of the stored runs that are
    shown.
    """

    policies: tuple[str, ...] = DEFAULT_POLICIES
    budget: float = 1.5
    seed: int = 0
    cpu_price: float = Price().cpu_core_hour
    memory_price: float = Price().memory_gib_hour
    container: str = ""
    runs: tuple[str, ...] = ()

    def overrides(self) -> list[str]:
        """Return the choices that differ from a scenario's defaults, as `KEY=VALUE` for
        `lab.ask.scenario.with_overrides`."""
        changed = [] if self.budget == Choices().budget else [f"budget_factor={self.budget!r}"]
        price = (self.cpu_price, self.memory_price)
        if price != (Price().cpu_core_hour, Price().memory_gib_hour):
            changed += [
                f"price.cpu_core_hour={self.cpu_price!r}",
                f"price.memory_gib_hour={self.memory_price!r}",
                "price.source=entered in the explorer",
            ]
        return changed


@dataclass(frozen=True)
class TraceChoices(Choices):
    """The choices on the page "Containers". recording: a shipped recording's name; empty for an upload or
    none."""

    recording: str = ""


@dataclass(frozen=True)
class ServiceChoices(Choices):
    """The choices on the page "Services".

    app: a shipped application's name, empty for none yet; arrivals: a preset of
    lab.containers.input.services.arrivals; scale: factor on its rates; duration_s: how long clients send
    requests, s; percentile: percentile of latency that is shown over time.
    """

    app: str = ""
    arrivals: str = "fixed"
    scale: float = 1.0
    duration_s: float = 60.0
    percentile: str = "p99"


AnyChoices = TypeVar("AnyChoices", bound=Choices)

_LISTS = ("policies", "runs")
_NAMES = {"arrivals": PRESETS, "percentile": tuple(PERCENTILES)}
"""Allowed texts of a field, where they do not depend on files."""
_RANGES = {
    "budget": (0.1, 100.0),
    "seed": (0, 2**31),
    "cpu_price": (0.0, 1e6),
    "memory_price": (0.0, 1e6),
    "scale": (0.01, 20.0),
    "duration_s": (1.0, 3600.0),
}
"""Least and most of every number; the pages' fields have the same."""


def limits(key: str) -> tuple[float, float]:
    """Return the smallest and the largest allowed value of a number of a selection."""
    return _RANGES[key]


def to_query(chosen: Choices) -> dict[str, str | list[str]]:
    """Return the selection as query parameters. A default value is left out."""
    query: dict[str, str | list[str]] = {}
    for field in fields(chosen):
        value = getattr(chosen, field.name)
        if value != field.default:
            query[field.name] = list(value) if field.name in _LISTS else str(value)
    return query


def from_query(kind: type[AnyChoices], query: Mapping[str, Sequence[str]]) -> tuple[AnyChoices, list[str]]:
    """Return the selection from the parameters (key → values), and one line per value that cannot be used."""
    problems: list[str] = []
    choices: dict[str, Any] = {}
    for field in fields(kind):
        values = query.get(field.name)
        if not values:
            continue
        if field.name == "policies":
            texts = _policies(values, problems)
            choices |= {"policies": texts} if texts else {}
        elif field.name == "runs":
            choices["runs"] = tuple(dict.fromkeys(values))[:MAX_RUNS]
        elif field.name not in _RANGES:
            choices |= _text(field.name, values[-1], problems)
        elif (number := _number(field.name, values[-1], type(field.default), problems)) is not None:
            choices[field.name] = number
    return kind(**choices), problems


def _policies(texts: Sequence[str], problems: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for text in texts:
        try:
            kept.append(policy.parse(text).text)
        except ScenarioError as error:
            problems.append(f"The address asks for a policy that cannot be used: {error}")
    return tuple(dict.fromkeys(kept))[:MAX_POLICIES]


def _text(key: str, text: str, problems: list[str]) -> dict[str, str]:
    known = _NAMES.get(key)
    if known is None or text in known:
        return {key: text}
    problems.append(
        f"The address has {key}={text}, which is not one of {', '.join(known)}; the default is used."
    )
    return {}


def _number(key: str, text: str, kind: type[Any], problems: list[str]) -> float | None:
    least, most = _RANGES[key]
    try:
        value: float = kind(text)
    except ValueError:
        value = float("nan")
    if isfinite(value) and least <= value <= most:
        return value
    problems.append(
        f"The address says {key}={text}, not a number from {least:g} to {most:g}; the default is used."
    )
    return None
