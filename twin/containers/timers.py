"""Virtual time: SimPy's clock, and calls after a delay or at a time.

For: everything that happens at an instant of its own. Not for: what happens then (simulation.py, lives.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy


class Timers:
    """Calls that are due at times of `env`."""

    def __init__(self) -> None:
        self.env = simpy.Environment()

    def after(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` after delay_s of virtual time."""
        event = self.env.timeout(max(delay_s, 0.0))
        event.callbacks.append(lambda _: action(*arguments))

    def exactly(self, at_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action(*arguments)` at at_s of virtual time, to the bit."""
        first_s, *rest_s = delays_until(at_s, self.env.now)
        if rest_s:
            self.after(first_s, self.after, *rest_s, action, *arguments)
        else:
            self.after(first_s, action, *arguments)


def delays_until(at_s: float, now_s: float) -> tuple[float, ...]:
    """Return the delays of consecutive timeouts, the last of which ends at at_s to the bit.

    The difference of two numbers is exact if the smaller one is at least half of the larger one (Sterbenz).
    If now_s is less, a first timeout leads to about three quarters of at_s.
    """
    if at_s <= 2 * now_s:
        return (at_s - now_s,)
    first_s = 0.75 * at_s - now_s
    return first_s, at_s - (now_s + first_s)
