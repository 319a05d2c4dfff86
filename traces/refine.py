"""Put a trace on another interval: on a finer one by a random model, on a coarser one by adding up.

For: replaying a trace of 1 s … 5 min intervals at the control period (100 ms). Not for: inventing load. Every
coarse interval keeps its mean CPU use.

The model. Within a coarse interval, CPU use is the interval's mean times exp(σ·g), g a Gaussian AR(1)
process (Ornstein–Uhlenbeck, correlation time `correlation_s`) per container, σ² = ln(1 + cv²): a
log-normal, positive, autocorrelated multiplier with coefficient of variation `cv`. It is divided by its
own mean over the interval, so the interval's mean is kept. Use above `max_cores` is cut and moved to the
interval's other moments in proportion to their room. Zero stays zero. Containers are independent, and cv is
the same at every level of use. Memory is the straight line between samples. Network bytes follow CPU use
within the interval, or are spread evenly if there is none. Throttled time is left out, because nothing says
how it is spread within an interval.

The default parameters (burstiness.toml) are fitted from the recordings that ship with twinbed. `python -m
traces.refine` fits them again and prints the file. Redirect the output to another file and then move it,
because the module reads the old file first.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from traces import parquet
from traces.load import RECORDED, shipped
from traces.schema import MAX_CELLS, Floats, UsageTrace
from twinbed import TraceError
from twinbed.text import counted

FIT_COARSE_S = 10.0
"""Length of the coarse intervals over which the default is fitted, s. It is many times the measured
correlation times, and short enough that a recording of a minute has several intervals."""

_LARGEST_CV = 100.0
"""Largest cv. Beyond it all use of an interval falls into one moment anyway."""

CHUNK_CELLS = 1 << 19
"""Number of fine cells processed at once. An array of 4 MiB stays in the cache, and memory is bounded."""


@dataclass(frozen=True, slots=True)
class Burstiness:
    """How CPU use varies within a coarse interval.

    cv: standard deviation / mean of the use at the fine interval, ≥ 0; 0 = flat
    correlation_s: time in which the autocorrelation of ln(use) falls to 1/e, s, ≥ 0; 0 = white
    """

    cv: float
    correlation_s: float

    def __post_init__(self) -> None:
        for name in ("cv", "correlation_s"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise TraceError(f"burstiness {name} is {value}, expected a number, zero or above")
        if self.cv > _LARGEST_CV:
            raise TraceError(f"burstiness cv is {self.cv:g}, expected at most {_LARGEST_CV:g}")


def _default() -> Burstiness:
    table = tomllib.loads(Path(__file__).with_name("burstiness.toml").read_text(encoding="utf-8"))
    return Burstiness(cv=table["default"]["cv"], correlation_s=table["default"]["correlation_s"])


DEFAULT = _default()
"""Burstiness of the shipped recordings at 100 ms. Every recording has the same weight."""


def refine(
    trace: UsageTrace,
    interval_s: float,
    seed: np.random.SeedSequence,
    burstiness: Burstiness = DEFAULT,
    max_cores: float | None = None,
) -> UsageTrace:
    """Return the trace on intervals of interval_s, finer (by the model above) or coarser (`aggregate`).

    max_cores: largest fine value, cores. Use is flat in an interval whose mean exceeds it. The same trace,
    seed and parameters give the same bits. Adds a note. Raises TraceError if neither interval is a multiple
    of the other, or the result has more than MAX_CELLS cells.
    """
    if not (isfinite(interval_s) and interval_s > 0):
        raise TraceError(f"interval is {interval_s} s, expected a number above zero")
    if max_cores is not None and not max_cores > 0:
        raise TraceError(f"max_cores is {max_cores}, expected above zero")
    if interval_s > trace.interval_s * 1.5:
        return aggregate(trace, interval_s)
    parts = multiple(trace.interval_s, interval_s)
    if parts == 1:
        return trace
    rows, columns = trace.shape
    if rows * parts * columns > MAX_CELLS:
        raise TraceError(
            f"{rows * parts} intervals of {interval_s:g} s × {counted(columns, 'container')} are more than "
            f"{MAX_CELLS} cells; select fewer containers, a shorter time or a longer period"
        )
    cap = np.inf if max_cores is None else max_cores
    cpu = Bursts(columns, parts, interval_s, seed, burstiness, cap).draw(trace.cpu_cores)
    return replace(
        trace,
        interval_s=interval_s,
        cpu_cores=cpu,
        memory_bytes=interpolated(trace.memory_bytes, trace.present, parts),
        present=np.repeat(trace.present, parts, axis=0),
        rx_bytes=None if trace.rx_bytes is None else _share_out(trace.rx_bytes, cpu, trace.cpu_cores),
        tx_bytes=None if trace.tx_bytes is None else _share_out(trace.tx_bytes, cpu, trace.cpu_cores),
        throttled_s=None,
        notes=(*trace.notes, refined_note(trace, interval_s, burstiness, max_cores)),
    )


def aggregate(trace: UsageTrace, interval_s: float) -> UsageTrace:
    """Return the trace on longer intervals: mean CPU, last memory, sums of the rest. Adds a note.

    A container is present in an interval if it is present at any moment of it. A last interval that is not
    full is left out. Raises TraceError if interval_s is not a multiple of the trace's, or longer than the
    trace.
    """
    parts = multiple(interval_s, trace.interval_s)
    rows = len(trace.present) // parts
    if rows == 0:
        raise TraceError(
            f"the trace lasts {trace.duration_s:g} s, shorter than an interval of {interval_s:g} s"
        )
    left_out = len(trace.present) - rows * parts

    def blocks(values: Floats) -> Floats:
        return values[: rows * parts].reshape(rows, parts, -1)

    def total(values: Floats | None) -> Floats | None:
        return None if values is None else blocks(values).sum(axis=1)

    present = trace.present[: rows * parts].reshape(rows, parts, -1)
    last = parts - 1 - np.argmax(present[:, ::-1], axis=1)
    note = f"Added up from {trace.interval_s:g} s to {interval_s:g} s intervals" + (
        f"; {left_out} of {len(trace.present)} at the end left out, too few for another one."
        if left_out
        else "."
    )
    return replace(
        trace,
        interval_s=interval_s,
        cpu_cores=blocks(trace.cpu_cores).mean(axis=1),
        memory_bytes=np.take_along_axis(blocks(trace.memory_bytes), last[:, None], axis=1)[:, 0],
        present=np.asarray(present.any(axis=1), np.bool_),
        rx_bytes=total(trace.rx_bytes),
        tx_bytes=total(trace.tx_bytes),
        throttled_s=total(trace.throttled_s),
        notes=(*trace.notes, note),
    )


def fit(trace: UsageTrace, coarse_interval_s: float) -> Burstiness:
    """Return the model's parameters for one fine trace seen through coarse intervals (see `fit_all`)."""
    return fit_all([trace], coarse_interval_s)


def fit_all(traces: Sequence[UsageTrace], coarse_interval_s: float) -> Burstiness:
    """Return parameters fitted by moments. Every trace has the same weight, whatever its length or cores.

    cv² is the variance within coarse intervals over the mean square of their means, so busy intervals count
    for more than idle ones. The correlation comes from the covariance of neighbouring fine intervals.
    Variation over longer times than the coarse interval is not seen, so the cv of strong, slow bursts is too
    low (1.34 instead of 1.5 at a correlation of 0.5 s and intervals of 20 s). Raises TraceError if the traces
    differ in interval, are shorter than the coarse one, or have no CPU use.
    """
    intervals = {trace.interval_s for trace in traces}
    if len(intervals) != 1:
        raise TraceError(f"burstiness is fitted to traces of one interval, not of {sorted(intervals)} s")
    moments = np.array([_moments(trace, coarse_interval_s) for trace in traces])
    variance, covariance = moments.mean(axis=0)
    if variance == 0:
        return Burstiness(cv=0.0, correlation_s=0.0)
    # The autocovariance of a log-normal AR(1) of mean 1 is exp(σ²φ) − 1.
    persistence = log(1 + max(0.0, covariance)) / log(1 + variance)
    correlation_s = -intervals.pop() / log(persistence) if 0 < persistence < 1 else 0.0
    return Burstiness(cv=sqrt(variance), correlation_s=correlation_s)


def _moments(trace: UsageTrace, coarse_interval_s: float) -> tuple[float, float]:
    """Return (variance, lag-one covariance) within coarse intervals, relative to the means' mean square."""
    parts = multiple(coarse_interval_s, trace.interval_s)
    rows = len(trace.present) // parts
    if parts < 2 or rows == 0:
        raise TraceError(
            f"burstiness over {coarse_interval_s:g} s cannot be fitted to "
            f"{counted(len(trace.present), 'interval')} of {trace.interval_s:g} s"
        )
    cpu = trace.cpu_cores[: rows * parts].reshape(rows, parts, trace.shape[1])
    # Only intervals in which the container was always present count, because its start is not a burst.
    whole = trace.present[: rows * parts].reshape(rows, parts, -1).all(axis=1)
    mean = cpu.mean(axis=1)
    scale = float((mean[whole] ** 2).sum())
    if not scale > 0:
        raise TraceError("burstiness cannot be fitted to a trace without CPU use")
    deviation = cpu - mean[:, None, :]
    variance = (deviation**2).mean(axis=1)[whole].sum()
    covariance = (deviation[:, 1:] * deviation[:, :-1]).mean(axis=1)[whole].sum()
    return float(variance) / scale, float(covariance) / scale


_Function = TypeVar("_Function", bound=Callable[..., object])


def _kernel(function: _Function) -> _Function:
    """Return `function` compiled at first use and cached on disk. It lets other threads run."""
    return cast(_Function, njit(cache=True, nogil=True, error_model="numpy")(function))


@_kernel
def _fluctuate(random: np.random.Generator, state: Floats, weight: float, keep: float, noise: Floats) -> None:
    """Fill noise (float64[t, N]), row by row: weight · a standard normal number + keep · the value before.

    state: float64[N], keep · the value before the first; it becomes that of the last. The random numbers are
    those of `random.standard_normal`, at a third of its time.
    """
    rows, columns = noise.shape
    for row in range(rows):
        for column in range(columns):
            value = state[column] + weight * random.standard_normal()
            noise[row, column] = value
            state[column] = keep * value


Mark = tuple[Mapping[str, Any], Floats]
"""Position in the random numbers of `Bursts`."""


class Bursts:
    """The CPU use of N = `columns` containers within coarse intervals, drawn in the order of time.

    The same seed gives the same bits, however many intervals are drawn at a time.
    """

    def __init__(
        self,
        columns: int,
        parts: int,
        interval_s: float,
        seed: np.random.SeedSequence,
        burstiness: Burstiness,
        cap: float,
    ) -> None:
        self._parts, self._cap, self._flat = parts, cap, burstiness.cv == 0
        sigma, lasting = sqrt(log(1 + burstiness.cv**2)), burstiness.correlation_s > 0
        keep = exp(-interval_s / burstiness.correlation_s) if lasting else 0.0
        self._weight, self._keep = sigma * sqrt(1 - keep**2), keep
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._state: Floats = keep * self._random.standard_normal(columns)

    @property
    def mark(self) -> Mark:
        """Return the position in the random numbers, for `go_to`."""
        return self._random.bit_generator.state, self._state.copy()

    def go_to(self, mark: Mark) -> None:
        """Go to a mark, so that the next draw repeats the draw that followed the mark."""
        self._random.bit_generator.state, self._state = mark[0], mark[1].copy()

    def draw(self, mean: Floats) -> Floats:
        """Return CPU use in the next coarse intervals, whose means are float64[t, N], as [t · parts, N]."""
        (rows, columns), parts = mean.shape, self._parts
        if self._flat:
            return np.repeat(mean, parts, axis=0)
        fine = np.empty((rows * parts, columns))
        step = max(1, CHUNK_CELLS // (parts * columns))
        for first in range(0, rows, step):
            level = mean[first : first + step]
            noise = fine[first * parts : (first + len(level)) * parts]
            _fluctuate(self._random, self._state, self._weight, self._keep, noise)
            np.exp(noise, out=noise)
            block = noise.reshape(len(level), parts, columns)
            block *= (level / block.mean(axis=1))[:, None, :]
            if block.max(initial=0.0) > self._cap:
                _cut(block, level, self._cap)
        return fine


def _cut(block: Floats, level: Floats, cap: float) -> None:
    """Cut block (float64[t, parts, N], means `level`) at the cap, in place, and keep its means."""
    over = np.argwhere(block.max(axis=1) > cap)
    row, column = over[:, 0], over[:, 1]
    mean = level[row, column][:, None]
    cut = np.minimum(block[row, :, column], cap)
    room = cap - cut
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (mean - cut.mean(axis=1, keepdims=True)) / room.mean(axis=1, keepdims=True)
        filled = np.minimum(cut + share * room, cap)
    block[row, :, column] = np.where(mean < cap, filled, mean)


def interpolated(memory: Floats, present: NDArray[np.bool_], parts: int) -> Floats:
    """Return memory at the ends of the fine intervals, on the straight line from the sample before to this
    interval's sample.

    Where a container is not present it is 0.
    """
    line = np.empty((len(memory) * parts, memory.shape[1]))
    interpolate(memory, present, parts, 0, False, line)
    return line


@_kernel
def interpolate(
    memory: Floats,
    present: NDArray[np.bool_],
    parts: int,
    skipped: int,
    rounded: bool,
    line: NDArray[np.generic],
) -> None:
    """Write the rows of `interpolated` after the first `skipped` into `line`, rounded if so asked."""
    rows, columns = memory.shape
    before, here = np.empty(columns), np.empty(columns)
    for row in range(skipped, rows):
        for column in range(columns):
            # A container that has just appeared has no sample before.
            known = row > 0 and present[row - 1, column]
            here[column] = memory[row, column] if present[row, column] else 0.0
            before[column] = memory[row - 1, column] if known and present[row, column] else here[column]
        for part in range(parts):
            share, place = (part + 1) / parts, (row - skipped) * parts + part
            for column in range(columns):
                value = before[column] * (1 - share) + here[column] * share
                least, most = min(before[column], here[column]), max(before[column], here[column])
                value = min(max(value, least), most)
                line[place, column] = np.rint(value) if rounded else value


def _share_out(total: Floats, cpu: Floats, mean: Floats) -> Floats:
    """Return interval totals spread over the fine intervals in proportion to CPU use, or evenly without
    it."""
    parts = len(cpu) // len(mean)
    block = cpu.reshape(len(mean), parts, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.where(mean[:, None, :] > 0, block / mean[:, None, :], 1.0)
    return np.asarray(weight * (total / parts)[:, None, :]).reshape(cpu.shape)


def multiple(long_s: float, short_s: float) -> int:
    """Return how often the short interval fits into the long one. Raises TraceError if it does not."""
    parts = round(long_s / short_s)
    if parts < 1 or abs(long_s / short_s - parts) > 1e-6 * parts:
        raise TraceError(f"an interval of {long_s:g} s is not a whole number of {short_s:g} s intervals")
    return parts


def refined_note(
    trace: UsageTrace, interval_s: float, burstiness: Burstiness, max_cores: float | None
) -> str:
    """Return the note that says what refining did to the trace."""
    note = (
        f"Refined from {trace.interval_s:g} s to {interval_s:g} s intervals by a random model (log-normal "
        f"bursts, coefficient of variation {burstiness.cv:.3g}, correlation time "
        f"{burstiness.correlation_s:.3g} s"
    )
    if max_cores is not None:
        note += f", at most {counted(max_cores, 'core')}"
    note += "); the mean CPU use of every interval is kept, memory is interpolated"
    if trace.rx_bytes is not None or trace.tx_bytes is not None:
        note += ", network follows CPU use"
    if trace.throttled_s is not None:
        note += ", throttled time is left out"
    if max_cores is not None and (over := int((trace.cpu_cores > max_cores).sum())):
        note += f"; flat: {counted(over, 'interval')} with a mean above {counted(max_cores, 'core')}"
    return note + "."


def print_fit() -> None:
    """Print burstiness.toml, fitted to the shipped recordings. Raises TraceError if there are none."""
    if not shipped():
        raise TraceError(f"{RECORDED}: no recordings to fit burstiness to")
    traces = {name: parquet.read(RECORDED / f"{name}.parquet") for name in shipped()}
    fitted = {"default": fit_all(list(traces.values()), FIT_COARSE_S)}
    fitted |= {name: fit(trace, FIT_COARSE_S) for name, trace in traces.items()}
    print("# Printed by `python -m traces.refine`: burstiness of CPU use in the shipped recordings.")
    print(f"# Within intervals of {FIT_COARSE_S:g} s; the default gives every recording the same weight.")
    for name, burstiness in fitted.items():
        print(f"\n[{name}]\ncv = {burstiness.cv:.3f}\ncorrelation_s = {burstiness.correlation_s:.3f}")


if __name__ == "__main__":
    try:
        print_fit()
    except TraceError as error:
        sys.exit(str(error))
