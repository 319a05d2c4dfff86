"""The rate at which clients will ask, for the preview of a load: from the workload's rates, without a draw.

For: the page "Services", where a preview must cost the same for every rate and length. Not for: the arrivals
of a run (lab.containers.input.services.arrivals).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from lab.containers.input.services.arrivals import AlibabaLike, ArrivalSpec, Burst, Exponential, Fixed
from twin.containers.model import Floats
from twin.containers.requests.arrivals import wandering_rates
from twinbed import InvariantError

_STRETCHES = 300


def rates(arrivals: str, scale: float, duration_s: float, seed: int) -> pd.DataFrame:
    """Returns the expected rate of a preset in at most _STRETCHES stretches. Columns: at_s, rps.

    Only the rates of `alibaba_like` are random: one value per second.
    """
    spec = TypeAdapter(ArrivalSpec).validate_python({"kind": arrivals, "scale": scale})
    width = max(1.0, np.ceil(duration_s / _STRETCHES))
    edges = np.append(np.arange(0.0, duration_s, width), duration_s)
    expected = _expected(spec, duration_s, np.random.default_rng(seed))(edges)
    return pd.DataFrame({"at_s": edges[:-1], "rps": np.diff(expected) / np.diff(edges)})


def _expected(spec: ArrivalSpec, duration_s: float, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """Returns the expected number of requests up to a time."""
    match spec:
        case Fixed() | Exponential():
            return lambda at_s: spec.rate_rps * spec.scale * at_s
        case Burst():
            return lambda at_s: spec.scale * (spec.base_rps * at_s + spec.burst_rps * _bursting_s(spec, at_s))
        case AlibabaLike():
            drawn = wandering_rates(
                spec.low_rps, spec.high_rps, spec.correlation_s, spec.step_s, duration_s, rng
            )
            until_s = np.arange(len(drawn) + 1) * spec.step_s
            sums = spec.scale * spec.step_s * np.append(0.0, np.cumsum(drawn))
            return lambda at_s: np.interp(at_s, until_s, sums)
    raise InvariantError(f"no preview of {type(spec).__name__}")


def _bursting_s(spec: Burst, at_s: Floats) -> Floats:
    """Returns the time before `at_s` that lies in bursts, which end every cycle, s."""
    cycles, inside = np.divmod(at_s, spec.every_s)
    return cycles * spec.length_s + np.maximum(0.0, inside - (spec.every_s - spec.length_s))
