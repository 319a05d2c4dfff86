"""Gives each policy one colour and one dash pattern, the same in every chart and table.

For: titles, colours and dashes of runs. Not for: drawing (lab.charts.drawing). The policies' colours are
those of Okabe and Ito (Color Universal Design, 2008), with a lighter blue for dark pages, and a grey. They
differ under the common kinds of colour blindness. Dashes repeat the distinction for print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.runs.labels import labels
from lab.runs.store import Run

_BASE = {
    "escra": "#1A7FC4",
    "autopilot": "#E69F00",
    "vpa": "#009E73",
    "static": "#CC79A7",
    "autothrottle": "#56B4E9",
    "unlimited": "#8C8C8C",
}
_SCHEMES = {
    "thorn": "escra",
    "bond": "autopilot",
    "reroute": "vpa",
    "none": "unlimited",
    "thorn-software": "autothrottle",
}
"""Scheme of a fabric → the container policy whose look it has. The two are never shown side by side."""
_FURTHER = ("#D55E00", "#7A4B9E")
_LAST = ("#B8A800", "#6B3E26")
"""Colours that resemble some of the others, so they are used last."""
SERIES = (*_BASE.values(), *_FURTHER, *_LAST)
"""Colours of lines that do not stand for a policy."""
AREAS = (*SERIES, "#C7D59F", "#F3B6C6", "#3D4A8A")
"""Colours of areas on top of each other, all different: as many as a chart of a trace needs."""
_ACRONYMS = ("vpa", "krr", "hpa", "fifo", "yarn", "las", "nccl")
_DASHES: tuple[tuple[int, ...], ...] = (
    (1, 0), (8, 3), (3, 2), (8, 3, 2, 3), (12, 4), (5, 2), (2, 4), (14, 3, 3, 3),
)  # fmt: skip

THROTTLED = "#D55E00"
USAGE = "#7F8790"
INK = "#6B727B"
"""Colour of text inside a chart on a white page: its contrast is 4.8. The explorer's pages have their own."""


@dataclass(frozen=True, slots=True)
class EventLook:
    """Colour, shape and name of the mark for an event of a container."""

    color: str
    shape: str
    text: str


EVENTS = {
    "kill": EventLook("#D55E00", "cross", "killed: out of memory"),
    "oom": EventLook("#E69F00", "triangle-up", "at its memory limit"),
    "grant": EventLook("#009E73", "circle", "granted more memory"),
    "restart": EventLook("#CC79A7", "diamond", "restarted"),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A run with its title among the shown runs, its colour and its dash pattern."""

    run: Run
    title: str
    color: str
    dash: tuple[int, ...]


def title(policy: str) -> str:
    """Return a policy's text form for people: `static:factor=1.5` → `Static · factor=1.5`."""
    if "(" in policy or ".py:" in policy:  # a user's own, which stays as it was written
        return policy
    name, *parameters = policy.split(":")
    words = [word.upper() if word in _ACRONYMS else word for word in name.split("-")]
    words[0] = words[0][:1].upper() + words[0][1:]
    return " · ".join(["-".join(words), *parameters])


def _named(run: Run) -> str:
    """Return the name under which a run's policy has its look."""
    name = run.policy.split(":", 1)[0]
    return _SCHEMES.get(name, name)


def shown(runs: Sequence[Run]) -> list[Shown]:
    """Return each run with a unique title. The first run of a policy gets the policy's own colour. Others
    get further colours, then those of policies that are not among the runs."""
    texts = labels(runs)
    looks: list[Shown] = []
    taken: set[str] = set()
    further = 0
    names = {_named(run) for run in runs}
    spare = (*_FURTHER, *(color for name, color in _BASE.items() if name not in names), *_LAST)
    for run, text in zip(runs, texts, strict=True):
        name = _named(run)
        full = text.replace(run.policy, title(run.policy), 1)
        if texts.count(text) > 1:
            full += f" · seed {run.seed}"
        if name in _BASE and name not in taken:
            taken.add(name)
            color, dash = _BASE[name], _DASHES[list(_BASE).index(name)]
        else:
            color, dash = spare[further % len(spare)], _DASHES[(6 + further) % len(_DASHES)]
            further += 1
        looks.append(Shown(run, full, color, dash))
    return looks
