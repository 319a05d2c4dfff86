"""Arrival times of requests in a user's file: an arrival process or a file, and its rate.

For: the `arrivals` of services and functions, and drawing arrivals from them. Not for: the processes
themselves (twin.containers.requests.arrivals) nor for the files' formats (traces.request_rates). Source: the
defaults of the first four kinds are the workloads of Escra's evaluation (ICDCS 2022); a name alone selects
one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BeforeValidator, Discriminator, Field, NonNegativeFloat, PositiveFloat, model_validator

from lab.ask.section import Section
from traces import request_rates
from twin.containers.model import Floats
from twin.containers.requests import arrivals
from twin.containers.requests.model import Arrivals
from twinbed import ScenarioError

MAX_ARRIVALS = 50_000_000
"""Most requests of one run. The log of more would take more than a GiB."""

_Rate = Annotated[float, Field(ge=0, le=1e7)]
_Scale = Annotated[float, Field(ge=0, le=1e6, description="Factor on every rate.")]


class Fixed(Section):
    """Requests at equal intervals."""

    kind: Literal["fixed"]
    """Name of this pattern."""
    rate_rps: _Rate = 400.0
    """Rate, requests/s."""
    scale: _Scale = 1.0


class Exponential(Section):
    """A Poisson stream: the time between requests is exponentially distributed."""

    kind: Literal["exponential"]
    """Name of this pattern."""
    rate_rps: _Rate = 300.0
    """Mean rate, requests/s."""
    scale: _Scale = 1.0


class Burst(Section):
    """Requests at equal intervals, and in addition a Poisson burst at the end of every cycle."""

    kind: Literal["burst"]
    """Name of this pattern."""
    base_rps: _Rate = 50.0
    """Rate outside bursts, requests/s."""
    burst_rps: _Rate = 600.0
    """Rate of the burst, in addition to the base, requests/s."""
    every_s: PositiveFloat = 20.0
    """Length of a cycle, which is quiet first and then has the burst, seconds."""
    length_s: PositiveFloat = Field(default=10.0, description="Length of a burst, seconds.")
    scale: _Scale = 1.0

    @model_validator(mode="after")
    def _fits(self) -> Burst:
        if self.length_s > self.every_s:
            raise ValueError(f"length_s is {self.length_s:g}, longer than every_s, {self.every_s:g}")
        return self


class AlibabaLike(Section):
    """A Poisson stream whose rate wanders between two bounds; every rate between them is equally likely.

    Escra's evaluation replays a part of Alibaba's trace ten times as fast and does not say which part.
    Only its range of rates is known; how the rate moves within that range is our assumption.
    """

    kind: Literal["alibaba_like"]
    """Name of this pattern."""
    low_rps: _Rate = 56.0
    """Lowest rate, requests/s."""
    high_rps: _Rate = 548.0
    """Highest rate, requests/s."""
    correlation_s: PositiveFloat = 30.0
    """Time after which the rate's autocorrelation has fallen to 1/e, seconds."""
    step_s: float = Field(default=1.0, ge=0.001, description="Time for which a rate holds, seconds.")
    scale: _Scale = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> AlibabaLike:
        if self.low_rps > self.high_rps:
            raise ValueError(f"low_rps is {self.low_rps:g}, above high_rps, {self.high_rps:g}")
        return self


class Rates(Section):
    """Request rates from a file."""

    kind: Literal["rates"]
    """Name of this pattern."""
    file: str = Field(min_length=1, description="CSV file with the columns t_s and rps, at equal intervals.")
    spacing: Literal["poisson", "even"] = "poisson"
    """Time between requests: exponentially distributed, or equal while a rate holds."""
    start_s: NonNegativeFloat = 0.0
    """Skip this much at the start of the file, in its own time, seconds."""
    speed: PositiveFloat = 1.0
    """Factor by which the file is played faster; its rates stay the same."""
    scale: _Scale = 1.0


class Timestamps(Section):
    """Requests at the times in a file."""

    kind: Literal["timestamps"]
    """Name of this pattern."""
    file: str = Field(min_length=1)
    """CSV file with a time column; times count from the first one."""
    start_s: NonNegativeFloat = 0.0
    """Skip this much at the start of the file, in its own time, seconds."""
    speed: PositiveFloat = 1.0
    """Factor by which the file is played faster, which raises the rate as much."""


_Kind = Fixed | Exponential | Burst | AlibabaLike | Rates | Timestamps
_Preset = Literal["fixed", "exponential", "burst", "alibaba_like"]

PRESETS: tuple[str, ...] = get_args(_Preset)
"""Kinds that a name alone selects, with the figures of Escra's evaluation."""


def _spelt_out(written: Any) -> Any:
    """Turn a name alone into the mapping that it selects. Other values are left to pydantic."""
    if isinstance(written, dict) and "kind" not in written:
        raise ValueError(f"kind: missing; give one of {', '.join(PRESETS)}, or another kind")
    if isinstance(written, str):
        if written not in PRESETS:
            raise ValueError(f"no arrivals are called {written!r}; give one of {', '.join(PRESETS)}")
        return {"kind": written}
    return written


ArrivalSpec: TypeAlias = Annotated[
    _Kind,
    Discriminator("kind"),
    BeforeValidator(_spelt_out, json_schema_input_type=_Preset | Annotated[_Kind, Discriminator("kind")]),
]


def generate(
    spec: ArrivalSpec, duration_s: float, weights: ArrayLike, seed: np.random.SeedSequence
) -> Arrivals:
    """Return the arrivals of one run: times by the spec, kinds in proportion to weights (float64[R]).

    Times and kinds have separate random streams, so the same seed gives the same times for any application.
    `seed` is not changed. Raises ScenarioError for more than MAX_ARRIVALS and for a file that is shorter than
    the run, TraceError for an error in a file.
    """
    times, kinds = (
        np.random.default_rng(np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, stream)))
        for stream in range(2)
    )
    return arrivals.with_kinds(_times(spec, duration_s, times), weights, kinds)


def _times(spec: ArrivalSpec, duration_s: float, rng: np.random.Generator) -> Floats:
    match spec:
        case Fixed():
            rate_rps = _bounded(spec.rate_rps * spec.scale, duration_s)
            return arrivals.fixed(rate_rps, duration_s)
        case Exponential():
            rate_rps = _bounded(spec.rate_rps * spec.scale, duration_s)
            return arrivals.poisson(rate_rps, duration_s, rng)
        case Burst():
            base_rps = _bounded(spec.base_rps * spec.scale, duration_s)
            burst_rps = _bounded(spec.burst_rps * spec.scale, duration_s)
            return arrivals.burst(base_rps, burst_rps, spec.every_s, spec.length_s, duration_s, rng)
        case AlibabaLike():
            low_rps, high_rps = spec.low_rps * spec.scale, _bounded(spec.high_rps * spec.scale, duration_s)
            rates = arrivals.wandering_rates(
                low_rps, high_rps, spec.correlation_s, spec.step_s, duration_s, rng
            )
            return arrivals.timestamps(arrivals.piecewise(rates, spec.step_s, rng), duration_s)
        case Rates():
            return _played(spec, duration_s, rng)
        case Timestamps():
            times = request_rates.read_timestamps(spec.file)
            _check_length(spec, float(times[-1]), duration_s)
            return arrivals.timestamps((times - spec.start_s) / spec.speed, duration_s)


def _played(spec: Rates, duration_s: float, rng: np.random.Generator) -> Floats:
    """Draw whole steps, from the step that contains start_s, and cut them to the run."""
    series = request_rates.read_rates(spec.file)
    _check_length(spec, series.duration_s, duration_s)
    first = int(spec.start_s / series.step_s)
    last = first + int(np.ceil(duration_s * spec.speed / series.step_s)) + 1
    rates = series.rates_rps[first:last] * spec.scale
    _bounded(float(rates.max()), duration_s)
    at_s = arrivals.piecewise(rates, series.step_s / spec.speed, rng, spec.spacing)
    begun_s = (spec.start_s - first * series.step_s) / spec.speed
    return arrivals.timestamps(at_s - begun_s, duration_s)


def _bounded(rate_rps: float, duration_s: float) -> float:
    """Return rate_rps. Raises ScenarioError if that may give a run too many requests."""
    if rate_rps * duration_s > MAX_ARRIVALS:
        raise ScenarioError(
            f"arrivals: {rate_rps:g} requests/s for {duration_s:g} s are more than the {MAX_ARRIVALS} that "
            "a run may have; lower the rate or shorten the run"
        )
    return rate_rps


def _check_length(spec: Rates | Timestamps, length_s: float, duration_s: float) -> None:
    left_s = max(length_s - spec.start_s, 0.0) / spec.speed
    # A file's length is a sum of decimals. A run of exactly this length must not fail because of the last
    # bit.
    if left_s < duration_s * (1 - 1e-9):
        raise ScenarioError(
            f"arrivals: {spec.file} lasts {length_s:g} s; from {spec.start_s:g} s at speed {spec.speed:g} it "
            f"covers {left_s:g} s of the run's {duration_s:g} s; shorten the run"
        )
