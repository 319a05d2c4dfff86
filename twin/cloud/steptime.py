"""Predict the step time of a language model on any number of nodes, from other runs and few probes of the
job.

For: a training job whose configuration is known (configurations.py). One or two runs on few nodes may be
known. Not for: jobs of which only GPUs and batch are known (scaling.py). `step_s` has no faults; stalls
multiply it later.

A micro-batch computes for FLOPs / (peak · e). The efficiency e saturates in the micro-batch's tokens and in
the model's width; a GPU with little memory bandwidth needs a larger width. Full sharding gathers the
parameters twice per micro-batch and reduces once. Sharded gradients are gathered once and reduced at the last
micro-batch. Without sharding, the last micro-batch all-reduces. Compute hides a part of the exchange: a
micro-batch takes (compute^γ + exchange^γ)^(1/γ). A host needs time to launch a layer's kernels, so a
micro-batch never computes faster than that. After the last micro-batch the optimiser reads and writes its
state at the memory's bandwidth.

The constants are learned from all runs, with priors (a ridge). The effects of the model, the GPU and the pair
of both are shrunk towards zero. A probe with the same micro-batch anchors the answer: the widest one is
matched exactly. Probes of other configurations only inform the learned part. Intervals are conformal. They
come from the errors on left-out model sizes, separately by how much was known. Sources: Pollux (OSDI 2021)
§3.2 for the composition; ZeRO (SC 2020) §7 for the volume; Searle et al. 1992 §8 for the shrunk groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from control.jobs import Flags, Real, Whole
from twin.cloud.configurations import Names, Runs, joined
from twin.cloud.gpus import gpu
from twin.cloud.intervals import conformal

CONSTANT, CHANGES, UNPROBED = "constant", "changes", "unprobed"
"""Regimes. CONSTANT: a probe has the same configuration. CHANGES: only other configurations were probed.
UNPROBED: there is no probe, or the question is outside the measured ranges."""


class Law(NamedTuple):
    """A learned constant. usual: its usual value. spread: standard deviation of its logarithm."""

    usual: float
    spread: float


_LAWS = {
    "tokens": Law(500.0, 1.0),
    "width": Law(1.0, 1.0),
    "scores": Law(2.0, 0.5),
    "exchange": Law(1.5, 0.5),
    "latency_s": Law(5e-6, 1.0),
    "straggle": Law(0.01, 1.0),
    "overlap": Law(2.0, 0.3),
    "again": Law(1.0, 0.1),
    "launch_s": Law(1e-3, 1.0),
}
"""Constants of the law. The spreads are wide: a factor of e where little is known.

tokens: tokens of a micro-batch at which a GPU works at half speed.
width: width at which a GPU works at half speed, per FLOP and byte of its memory.
scores: slow-down of attention scores.
exchange: nominal over actual bandwidth of links.
latency_s: latency of a message, s.
straggle: share that each doubling of nodes adds.
overlap: γ, between no overlap and the longer of the two.
again: cost of recomputation relative to its operations.
launch_s: time in which a host launches the kernels of a layer forward and backward, s: about 100 of 10 µs.
"""
_SCORES_SPREAD = 0.4
"""Standard deviation of a chip's own slow-down of attention scores. New chips get good kernels later."""
JOB = ("model", "gpu", "precision", "sequence")
"""Quantities that are equal in all runs of one job."""
_CONFIGURATION = (*JOB, "micro_batch", "recompute", "sharding")
_COMPARABLE = (*JOB, "recompute", "sharding")
_GROUPS = {
    ("model",): 0.05,
    ("flops_16", "precision"): 0.15,
    ("gpu", "precision"): 0.05,
    ("model", "gpu", "precision"): 0.03,
    JOB: 0.03,
    _CONFIGURATION: 0.03,
}
"""Initial standard deviation of each group's effect on the logarithm. GPUs with the same 16-bit peak have the
same chip (A100 with 40 and 80 GB; H100 and H200), and differ by their memory only. The last group is the
configuration: its effect is learned but never used for another configuration."""
_NOISE = 0.03
"""Initial standard deviation of a run's logarithm."""
_WEIGHT = 4.0
"""Weight of the initial deviations above, in numbers of groups."""
_ROUNDS = 12
"""Number of rounds of the fit. After ten, it changes by less than a thousandth."""
_USUAL = np.log([law.usual for law in _LAWS.values()])
_FOREIGN = "foreign"
"""Regime of an interval's width: the GPU has no run, or the question is outside the measured ranges."""
_ENOUGH = 10
"""Least number of errors from which the 90th percentile of a regime is taken."""
_UNTOLD = float(np.log(2.0))
"""Half-width of an interval if no run can be left out: a factor of two."""


def log_step_s(constants: Real, scores: Real, asked: Runs) -> Real:
    """Return the logarithm of seconds per step up to a common constant, float64[…, n].

    constants: logarithms of _LAWS, float64[…, 9], with one overlap; scores: each run's own part of the
    slow-down of attention, float64[…, n].
    """
    exchange, latency, straggle, overlaps = _each(constants)[3:7]
    overlap = overlaps.flat[0]
    computing = np.maximum(*_computing_s(constants, scores, asked))
    each, last = (exchange * volume for volume in _exchange_s(asked, latency))
    alone = computing**overlap
    micro = (alone + each**overlap) ** (1 / overlap)
    final = (alone + (each + last) ** overlap) ** (1 / overlap)
    whole = (asked.accumulation - 1) * micro + final + asked.update_s()
    step: Real = whole * (1 + straggle * np.log2(asked.nodes))
    return np.log(step)


def _computing_s(constants: Real, scores: Real, asked: Runs) -> tuple[Real, Real]:
    """Return a micro-batch's time on the GPU, and its launches' time on the host, s, float64[…, n] each."""
    half, narrow, attention, *_, again, launch = _each(constants)
    busy = _busy(half, narrow, asked.micro_tokens, asked.width, asked.flops / asked.memory_bytes_s)
    dense, score = asked.operations(np.where(asked.recompute, 8 * again, 6.0))
    computing = dense / asked.flops / busy + score / asked.flops_16 * attention * np.exp(scores)
    return computing, launch * asked.layers * np.where(asked.recompute, 4 / 3, 1)


def _each(constants: Real) -> Real:
    """Return the constants one by one, float64[9, …, 1]."""
    return np.moveaxis(np.exp(constants), -1, 0)[..., None]


def _busy(
    half: Real | float, narrow: Real | float, tokens: ArrayLike, width: ArrayLike, ratio: ArrayLike
) -> Real:
    """Return the share of its peak at which a GPU works. ratio: FLOP/s over bytes/s of its memory."""
    needed = narrow * np.asarray(ratio, np.float64)
    size, wide = np.asarray(tokens, np.float64), np.asarray(width, np.float64)
    return np.asarray(size / (size + half) * wide / (wide + needed))


def _exchange_s(asked: Runs, latency_s: Real) -> tuple[Real, Real]:
    """Return a micro-batch's time on the links, and the last one's additional time, s, float64[…, n] each."""
    full, none = asked.sharding == "full", asked.sharding == "none"
    wide = asked.nodes > 1
    slowest = np.where(wide, np.minimum(asked.link_bytes_s, asked.network_bytes_s), asked.link_bytes_s)
    # Each pass moves 16-bit parameters or gradients once around a ring, layer by layer.
    once = 2 * asked.parameters * (asked.gpus - 1) / asked.gpus / slowest
    once = once + asked.layers * (asked.gpus - 1) * latency_s
    return np.where(full, 3.0, np.where(none, 0.0, 1.0)) * once, np.where(
        full, 0.0, np.where(none, 2.0, 1.0)
    ) * once


@dataclass(frozen=True, slots=True)
class Answer:
    """Predictions of n runs.

    step_s: time of a step, s, float64[n].
    low_s, high_s: ends of the 90 % interval, s, float64[n].
    regime: CONSTANT, CHANGES or UNPROBED, [n].
    extrapolated: whether the question is outside what was measured, or has no probe, bool[n].
    predicted: whether the micro-batch was predicted from the memory, bool[n].
    """

    step_s: Real
    low_s: Real
    high_s: Real
    regime: Names
    extrapolated: Flags
    predicted: Flags


@dataclass(frozen=True, slots=True)
class _Fit:
    """The fitted law.

    runs: the runs. constants: logarithms of _LAWS.
    chips, scores: 16-bit peaks of GPUs, FLOP/s, and their own slow-downs of attention.
    common: the common constant.
    spread: deviations of _GROUPS. noise: variance of each run, float64[n].
    weights: V⁻¹ · residuals of the law, float64[n].
    """

    runs: Runs
    constants: Real
    chips: tuple[float, ...]
    scores: Real
    common: float
    spread: Real
    noise: Real
    weights: Real

    def with_probes(self, probes: Runs) -> _Fit:
        """Return the same law, with the effects of the probes' groups learned from the probes.

        A probe whose time the host's launches determine says little about the GPU. Its noise is the spread of
        `launch_s`.
        """
        runs = joined(self.runs, probes)
        computing, launching = _computing_s(self.constants, self._scores(probes), probes)
        usual = np.median(self.noise)
        own = np.where(launching > computing, _LAWS["launch_s"].spread ** 2, usual)
        noise = np.append(self.noise, own)
        between = np.diag(noise)
        for names, spread in zip(_GROUPS, self.spread, strict=True):
            between += spread**2 * _same(runs.groups(*names))
        law = self.common + log_step_s(self.constants, self._scores(runs), runs)
        weights = np.asarray(np.linalg.solve(between, np.log(runs.step_s) - law), np.float64)
        return replace(self, runs=runs, noise=noise, weights=weights)

    def log_s(self, asked: Runs) -> Real:
        """Return the logarithm of seconds per step, float64[m], without the effects of configurations."""
        added = np.zeros(len(asked))
        for names, spread in list(zip(_GROUPS, self.spread, strict=True))[:-1]:
            added += spread**2 * (_same(asked.groups(*names), self.runs.groups(*names)) @ self.weights)
        return self.common + log_step_s(self.constants, self._scores(asked), asked) + added

    def _scores(self, asked: Runs) -> Real:
        own = dict(zip(self.chips, self.scores, strict=True))
        return np.array([own.get(float(peak), 0.0) for peak in asked.flops_16])


def _fit(runs: Runs) -> _Fit:
    """Fit runs by Gauss–Newton rounds, which weigh outliers down and estimate deviations again."""
    kinds = tuple(sorted(set(map(float, runs.flops_16))))
    which = np.array([[peak == kind for kind in kinds] for peak in runs.flops_16], dtype=np.float64)
    usual = np.concatenate([[0.0], _USUAL, np.zeros(len(kinds))])
    sure = np.array(
        [0.0, *(law.spread**-2.0 for law in _LAWS.values()), *[_SCORES_SPREAD**-2.0] * len(kinds)]
    )
    same = [_same(runs.groups(*names)) for names in _GROUPS]
    counts = [len(set(runs.groups(*names))) for names in _GROUPS]
    prior = np.array(list(_GROUPS.values()))
    spread, noise, known = prior.copy(), _NOISE, np.log(runs.step_s)
    end, overlap = 1 + len(_LAWS), 1 + list(_LAWS).index("overlap")

    def told(points: Real) -> Real:
        """Return float64[k, n]. points: float64[k, ·], all with one overlap."""
        return points[:, :1] + log_step_s(points[:, 1:end], points[:, end:] @ which.T, runs)

    point, trust = usual.copy(), np.ones(len(runs))
    point[0] = np.median(known - told(point[None])[0])
    weights = np.zeros(len(runs))
    for _ in range(_ROUNDS):
        moved = np.vstack([point, point + 1e-5 * np.eye(point.size)])
        other = moved[:, overlap] != point[overlap]
        times = np.empty((len(moved), len(runs)))
        times[~other], times[other] = told(moved[~other]), told(moved[other])
        now = times[0]
        slopes = np.ascontiguousarray(((times[1:] - now) / 1e-5).T)
        between = sum(s**2 * group for s, group in zip(spread, same, strict=True))
        inverse = np.linalg.inv(between + np.diag(noise**2 / trust))
        pull = slopes.T @ inverse
        move = np.linalg.solve(pull @ slopes + np.diag(sure), pull @ (known - now) - sure * (point - usual))
        point = point + np.clip(move, -1.0, 1.0)
        left = known - told(point[None])[0]
        weights = inverse @ left
        for at, group in enumerate(same):
            squares = spread[at] ** 4 * (weights @ group @ weights)
            squares += counts[at] * spread[at] ** 2 - spread[at] ** 4 * float((inverse * group).sum())
            spread[at] = np.sqrt((_WEIGHT * prior[at] ** 2 + max(squares, 0.0)) / (_WEIGHT + counts[at]))
        alone = noise**2 / trust * weights
        noise = float(np.sqrt((_WEIGHT * _NOISE**2 + trust @ alone**2) / (_WEIGHT + len(runs))))
        trust = 1 / np.sqrt(1 + (alone / noise) ** 2)
    variance = noise**2 / trust
    return _Fit(runs, point[1:end], kinds, point[end:], float(point[0]), spread, variance, weights)


def _same(words: Names, others: Names | None = None) -> Flags:
    return np.asarray(words[:, None] == (words if others is None else others)[None, :], np.bool_)


class StepTimes:
    """Step times predicted from other runs.

    others: measured runs of other jobs, possibly none. Widths of intervals are learned at first use, by
    leaving out each model and each GPU in turn.
    """

    def __init__(self, others: Runs) -> None:
        self._others = others
        self._fit = _fit(others) if len(others) else None

    def busy(self, tokens: ArrayLike, width: ArrayLike, gpu_name: str) -> Real:
        """Return the share of its peak at which a GPU works, for models with tensor parallelism.

        tokens: tokens of a micro-batch. width: the part of a layer's width that is on one GPU.
        """
        half, narrow = np.exp((_USUAL if self._fit is None else self._fit.constants)[:2])
        kind = gpu(gpu_name)
        return _busy(half, narrow, tokens, width, kind.flops / kind.memory_bytes_s)

    def answer(self, probes: Runs, asked: Runs) -> Answer:
        """Return predictions of the runs of one job. probes: its measured runs.

        Probes have the same model, sequence, GPU and precision. There may be none.
        """
        step_s, like = self.step_s(probes, asked)
        # A configuration that no probe has is predicted from the other runs, so it must be in their ranges.
        alike = _outside(joined(self._others, probes), asked)
        beyond = np.where(like, alike, _outside(self._others, asked)) if len(self._others) else alike
        outside = beyond | (len(probes) == 0)
        regime = np.where(like, CONSTANT, CHANGES).astype(np.object_)
        regime[outside] = UNPROBED
        wide = np.exp([self._widths[name] for name in np.where(beyond, _FOREIGN, regime)])
        return Answer(step_s, step_s / wide, step_s * wide, regime, outside, asked.predicted)

    def step_s(self, probes: Runs, asked: Runs) -> tuple[Real, Flags]:
        """Return seconds per step, float64[n], and which runs have the configuration of a probe, bool[n]."""
        like = np.zeros(len(asked), dtype=np.bool_)
        fit = self._fit
        if len(probes):
            fit = _fit(probes) if fit is None else fit.with_probes(probes)
        if fit is None:
            log_s = log_step_s(_USUAL, np.zeros(len(asked)), asked)
        else:
            log_s, like = _anchored(fit, probes, asked)
        return np.maximum(np.exp(log_s), asked.least_s()), like

    @cached_property
    def _widths(self) -> dict[str, float]:
        """Regime → half-width of an interval, in the logarithm."""
        errors: dict[str, list[Real]] = {name: [] for name in (CONSTANT, CHANGES, UNPROBED, _FOREIGN)}
        for model, left in _left_out(self._others, "model"):
            for job in jobs(left):
                errors[UNPROBED].append(_off(model, job.take([]), job)[0])
                known = two_narrowest(job)
                if known.any():
                    off, like = _off(model, job.take(known), job.take(~known))
                    errors[CONSTANT].append(off[like])
                    errors[CHANGES].append(off[~like])
        # Two GPU models give one difference, whose spread is unknown.
        several = len(set(self._others.gpu)) > 2
        for model, left in _left_out(self._others, "gpu") if several else ():
            errors[_FOREIGN].append(_off(model, left.take([]), left)[0])
        widths, pooled = {}, np.empty(0)
        # A regime with few errors uses those of the regimes in which less is known, too.
        for name in (_FOREIGN, UNPROBED, CHANGES, CONSTANT):
            own = np.concatenate([*errors[name], np.empty(0)])
            pooled = own if own.size >= _ENOUGH else np.concatenate([own, pooled])
            widths[name] = conformal(pooled) if pooled.size else _UNTOLD
            pooled = pooled if name != _FOREIGN else np.empty(0)
        return widths


def jobs(runs: Runs) -> Iterator[Runs]:
    """Yield the runs of each job: one model at one sequence length on one GPU in one precision."""
    words = runs.groups(*JOB)
    for word in sorted(set(words)):
        yield runs.take(words == word)


def two_narrowest(job: Runs) -> Flags:
    """Return the runs of a job that are its probes: those on the two smallest numbers of GPUs, bool[n].

    A job on two numbers of GPUs has the smaller as its only probe. A job on one number has no probe.
    """
    widths = np.unique(job.gpus)
    return np.asarray(job.gpus <= widths[min(1, widths.size - 2)]) & (widths.size > 1)


def _left_out(runs: Runs, quantity: str) -> Iterator[tuple[StepTimes, Runs]]:
    """Yield each value's runs with the predictor from all other runs; nothing if there is only one value."""
    words = runs.groups(quantity)
    values = sorted(set(words))
    for value in values if len(values) > 1 else ():
        yield StepTimes(runs.take(words != value)), runs.take(words == value)


def _off(model: StepTimes, probes: Runs, asked: Runs) -> tuple[Real, Flags]:
    step_s, like = model.step_s(probes, asked.hidden())
    return np.abs(np.log(step_s / asked.step_s)), like


def _anchored(fit: _Fit, probes: Runs, asked: Runs) -> tuple[Real, Flags]:
    """Return the logarithms of seconds per step, adjusted to the probes, and bool[n]: whether a probe has the
    configuration.
    """
    log_s = fit.log_s(asked)
    if not len(probes):
        return log_s, np.zeros(len(asked), dtype=np.bool_)
    apart = np.log(probes.step_s) - fit.log_s(probes)
    same = probes.groups(*_CONFIGURATION)[:, None] == asked.groups(*_CONFIGURATION)[None, :]
    for row in range(len(asked)):
        mine = np.flatnonzero(same[:, row])
        equal = mine[probes.accumulation[mine] == asked.accumulation[row]]
        if mine.size:
            log_s[row] = _through(fit, probes, apart, equal if equal.size else mine, asked.take([row]))
        else:
            log_s[row] = _bounded(fit, probes, apart, asked.take([row]), log_s[row])
    return log_s, same.any(axis=0)


def _through(fit: _Fit, probes: Runs, apart: Real, mine: Whole, asked: Runs) -> float:
    """Return the logarithm of seconds per step of the asked configuration, through the probes at `mine`.

    Beyond the probes, the nearest probe's distance from the learned law applies. Between two probes, the
    measured times are joined along the law, so that the answer rises where both do.
    """
    widths = np.unique(probes.gpus[mine])
    means = np.array([apart[mine[probes.gpus[mine] == width]].mean() for width in widths])
    own = fit.log_s(asked)[0]
    right = int(np.searchsorted(widths, asked.gpus[0]))
    if right == 0 or right == widths.size:
        return float(own + means[min(right, widths.size - 1)])
    ends = [fit.log_s(replace(asked, gpus=widths[at : at + 1]))[0] for at in (right - 1, right)]
    low, high = ends[0] + means[right - 1], ends[1] + means[right]
    share = np.log(asked.gpus[0] / widths[right - 1]) / np.log(widths[right] / widths[right - 1])
    if ends[1] > ends[0]:
        share = (own - ends[0]) / (ends[1] - ends[0])
    return float(low + share * (high - low))


def _bounded(fit: _Fit, probes: Runs, apart: Real, asked: Runs, log_s: float) -> float:
    """Return the logarithm, bounded by probes with as many tokens in smaller or larger micro-batches.

    Under full sharding, more accumulation at the same tokens is never faster.
    """
    comparable = probes.groups(*_COMPARABLE) == asked.groups(*_COMPARABLE)[0]
    comparable &= (probes.sharding == "full") & np.isclose(
        probes.tokens / probes.gpus, asked.tokens / asked.gpus
    )
    for probe in np.flatnonzero(comparable):
        there = fit.log_s(replace(probes.take([int(probe)]), gpus=asked.gpus))[0] + apart[probe]
        larger = asked.micro_batch[0] > probes.micro_batch[probe]
        log_s = min(log_s, there) if larger else max(log_s, there)
    return float(log_s)


def _outside(known: Runs, asked: Runs) -> Flags:
    """Return bool[n]: whether a run is outside the known runs' ranges, or on an unknown GPU or precision."""
    outside = ~np.isin(asked.groups("gpu", "precision"), known.groups("gpu", "precision"))
    for name in ("parameters", "sequence", "micro_tokens", "gpus"):
        values, range_ = getattr(asked, name), getattr(known, name)
        outside |= (values < range_.min(initial=np.inf)) | (values > range_.max(initial=-np.inf))
    return outside
