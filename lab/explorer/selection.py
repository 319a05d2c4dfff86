"""What the user chose, as a value that fits into a page's address and back.

For: the one form in which choices live in the session and in the URL. Not for: widgets (the pages) nor
for checking that a recording or a run is there. An address is text that anybody may have typed, so
what cannot be used is left at its default and reported in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from lab import policy
from lab.scenario import DEFAULT_POLICIES, Price
from twinbed import ScenarioError

MAX_POLICIES = 8
"""As many as the palette can tell apart."""
MAX_RUNS = 24


@dataclass(frozen=True, slots=True)
class Selection:
    """recording: a shipped recording's name, empty for an uploaded trace or none; policies: text forms;
    budget: Ω and M as a multiple of the sum of profiled peaks; cpu_price, memory_price: per core-hour
    and GiB-hour; container: the one that is looked at; runs: ids of the stored runs that are shown.
    """

    recording: str = ""
    policies: tuple[str, ...] = DEFAULT_POLICIES
    budget: float = 1.5
    seed: int = 0
    cpu_price: float = Price().cpu_core_hour
    memory_price: float = Price().memory_gib_hour
    container: str = ""
    runs: tuple[str, ...] = ()

    def overrides(self) -> list[str]:
        """What differs from a scenario's defaults, as `KEY=VALUE` for `lab.runner.whatif`."""
        changed = [] if self.budget == Selection().budget else [f"budget_factor={self.budget!r}"]
        price = (self.cpu_price, self.memory_price)
        if price != (Price().cpu_core_hour, Price().memory_gib_hour):
            changed += [
                f"price.cpu_core_hour={self.cpu_price!r}",
                f"price.memory_gib_hour={self.memory_price!r}",
                "price.source=entered in the explorer",
            ]
        return changed


_TEXT = ("recording", "container")
_LISTS = ("policies", "runs")


def to_query(selection: Selection) -> dict[str, str | list[str]]:
    """The selection as query parameters; what has its default is left out."""
    query: dict[str, str | list[str]] = {}
    for key in Selection.__slots__:
        value = getattr(selection, key)
        if value != getattr(Selection(), key):
            query[key] = list(value) if key in _LISTS else str(value)
    return query


def from_query(query: Mapping[str, Sequence[str]]) -> tuple[Selection, list[str]]:
    """The selection that the parameters (key → values) ask for, and one line per value not usable."""
    problems: list[str] = []
    given: dict[str, object] = {key: query[key][-1] for key in _TEXT if query.get(key)}
    if query.get("policies"):
        texts = _policies(query["policies"], problems)
        given |= {"policies": texts} if texts else {}
    if query.get("runs"):
        given["runs"] = tuple(dict.fromkeys(query["runs"]))[:MAX_RUNS]
    readers: tuple[tuple[str, Callable[[str], float], float], ...] = (
        ("budget", float, 0.1),
        ("seed", int, 0),
        ("cpu_price", float, 0.0),
        ("memory_price", float, 0.0),
    )
    for key, kind, least in readers:
        if query.get(key):
            number = _number(query[key][-1], kind, least)
            if number is None:
                problems.append(
                    f"The address says {key}={query[key][-1]}, which is no number of at least {least:g}; "
                    "the default is used."
                )
            else:
                given[key] = number
    return Selection(**given), problems  # type: ignore[arg-type]  # each key has its field's type


def _policies(texts: Sequence[str], problems: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for text in texts:
        try:
            kept.append(policy.parse(text).text)
        except ScenarioError as error:
            problems.append(f"The address asks for a policy that cannot be used: {error}")
    return tuple(dict.fromkeys(kept))[:MAX_POLICIES]


def _number(text: str, kind: Callable[[str], float], least: float) -> float | None:
    try:
        value = kind(text)
    except ValueError:
        return None
    return value if isfinite(value) and value >= least else None
