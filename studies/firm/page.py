"""docs/results/firm-training.md and Firm's trained numbers: `python -m studies firm-training`.

For: the comparison of rules in worlds that nothing was trained in, and the classifier's module
(control/allocator/firm_weights.py). Not for: learning (train.py), nor Firm beside other policies
(studies.experiments.firm).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import numpy as np

from control.allocator.firm_agent import Actor, Aimd, Rule, Window
from control.allocator.firm_culprits import Separator
from control.allocator.model import Floats
from lab.runs.compare import mean_ci95
from studies import harness
from studies.firm.train import EPISODES, STEP_CORES, separator, train, worlds
from studies.firm.world import ROOM_S, WINDOW_S, WINDOWS, play
from studies.harness import Asked

PATH = harness.ROOT / "control" / "allocator" / "firm_weights.py"
HELD_OUT, FIRST_HELD_OUT = 40, 900_000
ROOMS_S = (5.0, 60.0, 300.0)


def keep(window: Window) -> Floats:
    """Return the limits as they are."""
    return window.limit_cores


def compared(rules: Mapping[str, tuple[Rule, float]], line: Separator) -> dict[str, Floats]:
    """Return the means of each rule in worlds without training, float64[HELD_OUT, 3].

    rules: title → the rule, and the time for which it leaves room, s. The columns are those of
    `Played.earned`.
    """
    rows: dict[str, list[tuple[float, float, float]]] = {title: [] for title in rules}
    for world in islice(worlds(FIRST_HELD_OUT), HELD_OUT):
        for title, (rule, room_s) in rules.items():
            rows[title].append(play(world, rule, line, room_s=room_s).earned())
    return {title: np.array(of_rule) for title, of_rule in rows.items()}


def make(asked: Asked) -> int:
    """Train, compare, and write the trained numbers and the page."""
    line, told = separator()
    layers = train(line, harness.clock(asked.minutes))
    rules: dict[str, tuple[Rule, float]] = {"every limit kept": (keep, ROOM_S)}
    rules |= {f"AIMD, room for {room_s:g} s": (Aimd(STEP_CORES), room_s) for room_s in ROOMS_S}
    rules |= {f"DDPG, room for {ROOM_S:g} s": (Actor(layers, STEP_CORES), ROOM_S)}
    harness.write(PATH, module(line))
    harness.publish("firm-training", document(told, compared(rules, line)), asked.out)
    return 0


def module(line: Separator) -> str:
    """Return the text of the module of trained numbers, with the classifier's numbers replaced."""
    head = PATH.read_text(encoding="utf-8").partition("SEPARATOR =")[0]
    return f"{head}SEPARATOR = Separator({line.importance}, {line.congestion}, {line.bias})\n"


def document(told: str, earned: Mapping[str, Floats]) -> str:
    """Return the page. told: a sentence on the classifier's accuracy."""
    base = earned[f"AIMD, room for {ROOM_S:g} s"][:, 0]
    rows = []
    for title, values in earned.items():
        (gained, ci95), (more, more_ci95) = mean_ci95(values[:, 0]), mean_ci95(values[:, 0] - base)
        cells = [f"{gained:.3f} ± {ci95:.3f}", f"{more:+.3f} ± {more_ci95:.3f}"]
        rows.append([title, *cells, *(f"{share:.1%}" for share in values[:, 1:].mean(axis=0))])
    header = ("rule", "5 · SLO kept + use/limit", "more than AIMD", "SLO kept", "use/limit")
    means = {title: float(values[:, 0].mean()) for title, values in earned.items()}
    more, ci95 = mean_ci95(earned[f"DDPG, room for {ROOM_S:g} s"][:, 0] - base)
    answer = (
        f"An actor trained as the source describes earns {more:+.3f} ± {ci95:.3f} beside AIMD, its "
        f"baseline, on applications that it has not seen, so Firm "
        f"{'should ship with it' if more > ci95 else 'ships with AIMD'}.",
        f"Of all rules below, `{max(means, key=means.__getitem__)}` earns most and "
        f"`{min(means, key=means.__getitem__)}` least.",
        told,
    )
    conditions = (
        f"{HELD_OUT} random applications of 5 to 10 services with random load, {WINDOWS} windows of "
        f"{WINDOW_S:g} s each, with an SLO of 1.5 to 8 times the p99 that they have without limits; ± is the "
        f"95 % interval over applications. The actor saw {EPISODES} episodes in other applications (the "
        f"source: 9000 of 300 steps).",
    )
    title = "Firm: what its training is worth"
    return harness.page("firm-training", title, answer, [harness.table(header, rows)], conditions)
