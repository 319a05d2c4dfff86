"""Firm's two rules for a CPU limit: a trained actor, or additive increase and multiplicative decrease
(AIMD).

For: the facts about containers at a window's end, and the two rules that turn them into limits. The policy
uses AIMD; studies.firm trains actors and compares them with it. Not for: finding culprits (firm_culprits.py),
bounds of limits (firm.py), nor training.

Source: Qiu et al., "FIRM", OSDI 2020, and its public code: the state, the three actions of a resource, an
actor with two hidden layers of 40 units, and the rule that it was compared with. These are our readings. Firm
has one actor per type of service; an allocator does not know a container's type, so one actor serves all. The
state has five ratios of use to limit. Only the CPU's is kept, because Firm scales only CPU here. The shares
of the request mix are those of the three commonest kinds. The action is the largest of the actor's three
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Flags, Floats

KEEP, RAISE, LOWER = 0, 1, 2
"""Actions, in the order of the actor's outputs."""
DIRECTION = np.array([0.0, 1.0, -1.0])
"""Number of steps by which each action moves a limit."""
INPUTS = 6
"""Length of a state vector."""
MOST_LOAD_RATIO = 4.0
"""Largest ratio of the load to the last window's load that a state shows: our choice, because a ratio is
unbounded."""


@dataclass(frozen=True, slots=True)
class Window:
    """Facts about n containers of applications with traffic, at a window's end.

    slots: int64[n]. limit_cores: float64[n], in force. used: float64[n], mean use over the limit, 0 to 1.
    kept: float64[n], SLO over the application's p99 latency, at most 1; 0 where no request was answered.
    load: float64[n], request rate over that of the window before. mix: float64[n, 3], shares of the
    application's three commonest kinds of request. violated: bool[n], the SLO was missed. culprit: bool[n],
    the container's waiting is the cause.
    """

    slots: NDArray[np.int64]
    limit_cores: Floats
    used: Floats
    kept: Floats
    load: Floats
    mix: Floats
    violated: Flags
    culprit: Flags

    @property
    def state(self) -> Floats:
        """Input of the actor, float64[n, INPUTS]: each number between 0 and about 1."""
        load = np.minimum(self.load, MOST_LOAD_RATIO) / MOST_LOAD_RATIO
        return np.column_stack([self.used, self.kept, load, self.mix])


Rule = Callable[[Window], Floats]
"""A rule: window → limits that its containers should have, float64[n] cores."""


class Aimd:
    """Double the limits where the SLO was missed; elsewhere lower them by a step."""

    def __init__(self, step_cores: float) -> None:
        self._step_cores = step_cores

    def __call__(self, window: Window) -> Floats:
        """Return the limits wanted; see `Rule`."""
        lower = window.limit_cores - self._step_cores
        return np.where(window.violated, 2.0 * window.limit_cores, lower)


Layers = Sequence[tuple[Sequence[Sequence[float]], Sequence[float]]]
"""Weights [outputs][inputs] and biases [outputs] of each layer."""


class Actor:
    """A trained actor: rectified hidden layers, and the largest of three outputs is the action."""

    def __init__(self, layers: Layers, step_cores: float) -> None:
        self._layers = [
            (np.array(weights, np.float64), np.array(bias, np.float64)) for weights, bias in layers
        ]
        self._step_cores = step_cores

    def actions(self, state: Floats) -> NDArray[np.int64]:
        """Return KEEP, RAISE or LOWER for each state, int64[n]. state: float64[n, INPUTS]."""
        *hidden, (weights, bias) = self._layers
        for inner, offset in hidden:
            # einsum, because its sums do not depend on how many states are computed together; those of BLAS
            # do.
            state = np.maximum(np.einsum("ni,oi->no", state, inner) + offset, 0.0)
        return np.asarray(np.argmax(np.einsum("ni,oi->no", state, weights) + bias, axis=1), np.int64)

    def __call__(self, window: Window) -> Floats:
        """Return the limits wanted; see `Rule`."""
        return window.limit_cores + DIRECTION[self.actions(window.state)] * self._step_cores
