"""docs/results/firm-training.md and Firm's trained numbers: `python -m studies firm-training`.

For: the comparison of rules in worlds that nothing was trained in, which decides what ships, and writing
control/allocator/firm_weights.py. Not for: learning (train.py), nor Firm beside other policies
(studies.experiments.firm).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from control.allocator.firm_agent import Actor, Aimd, Layers, Rule, Window
from control.allocator.firm_culprits import Separator
from control.allocator.model import Floats
from lab.runs.compare import mean_ci95
from studies import harness
from studies.firm.train import EPISODES, STEP_CORES, Told, separator, train, worlds
from studies.firm.world import ROOM_S, WINDOW_S, WINDOWS, Played, play
from studies.harness import Asked

PATH = harness.ROOT / "control" / "allocator" / "firm_weights.py"
HELD_OUT, FIRST_HELD_OUT = 40, 900_000
ROOMS_S = (5.0, 60.0, 300.0)
KEEP, AIMD, DDPG = "every limit kept", "AIMD, room for {:g} s", "DDPG, room for {:g} s"


@dataclass(frozen=True, slots=True)
class Earned:
    """What a rule earned in worlds that nothing was trained in.

    reward, ci95: mean of the source's reward, and half of its 95 % interval over worlds. used: mean use over
    limit. kept: share of windows in which the SLO was kept.
    """

    reward: float
    ci95: float
    used: float
    kept: float


def keep(window: Window) -> Floats:
    """Return the limits as they are."""
    return window.limit_cores


def compared(rules: Mapping[str, tuple[Rule, float]], line: Separator) -> dict[str, Earned]:
    """Return what each rule earned. rules: title → the rule, and for how long it leaves room, s."""
    runs: dict[str, list[Played]] = {title: [] for title in rules}
    for world in islice(worlds(FIRST_HELD_OUT), HELD_OUT):
        for title, (rule, room_s) in rules.items():
            runs[title].append(play(world, rule, line, room_s=room_s))
    return {
        title: Earned(
            *mean_ci95(np.array([run.reward for run in of_rule])),
            float(np.mean([run.used for run in of_rule])),
            float(np.mean([run.kept for run in of_rule])),
        )
        for title, of_rule in runs.items()
    }


def make(asked: Asked) -> int:
    """Train, compare, and write the trained numbers and the page."""
    line, told = separator()
    harness.say(f"{line}, {told}")
    layers = train(line, harness.clock(asked.minutes))
    rules: dict[str, tuple[Rule, float]] = {KEEP: (keep, ROOM_S)}
    rules |= {AIMD.format(room_s): (Aimd(STEP_CORES), room_s) for room_s in ROOMS_S}
    rules |= {DDPG.format(ROOM_S): (Actor(layers, STEP_CORES), ROOM_S)}
    earned = compared(rules, line)
    harness.write(PATH, module(line, layers))
    harness.write(asked.out / "firm-training.md", document(told, earned))
    return 0


def module(line: Separator, layers: Layers) -> str:
    """Return the module of trained numbers."""
    numbers = json.dumps(layers).replace("[", "(").replace("]", ",)")
    lines = textwrap.wrap(numbers, 108, break_long_words=False)
    return f'''"""Firm's trained numbers. Made by `python -m studies firm-training`; edit studies/firm.

For: the classifier of culprits and the actor's layers. Not for: what they mean (firm_culprits.py,
firm_agent.py).
"""

from __future__ import annotations

from control.allocator.firm_agent import Layers
from control.allocator.firm_culprits import Separator

SEPARATOR = Separator({line.importance}, {line.congestion}, {line.bias})
# fmt: off
ACTOR: Layers = (
{chr(10).join(lines)}
)
'''


def document(told: Told, earned: Mapping[str, Earned]) -> str:
    """Return the page."""
    best = max(earned, key=lambda title: earned[title].reward)
    rows = [
        (title, f"{rule.reward:.3f} ± {rule.ci95:.3f}", f"{rule.kept:.1%}", f"{rule.used:.1%}")
        for title, rule in earned.items()
    ]
    answer = (
        f"On applications that nothing was trained in, most is earned with {best}.",
        f"The classifier finds {told.found:.0%} of the throttled containers and calls {told.wrongly:.0%} of "
        "the others culprits.",
        "The figures decide the defaults of the policy firm; other policies are on the page of containers.",
    )
    header = ("rule", "5 · SLO kept + use/limit", "windows with the SLO kept", "use/limit")
    conditions = (
        f"{HELD_OUT} random applications of 5 to 10 services with random load, {WINDOWS} windows of "
        f"{WINDOW_S:g} s each, with an SLO of 1.5 to 8 times the p99 that they have without limits; ± is the "
        f"95 % interval over applications. The actor saw {EPISODES} episodes in other applications (the "
        f"source: 9000 of 300 steps), the classifier {told.samples:,} windows of containers, of which "
        f"{told.culprits:.1%} were culprits.",
    )
    return harness.page(
        "firm-training", "Firm: what its training is worth", answer, [harness.table(header, rows)], conditions
    )
