"""Autopilot's ML recommender: an ensemble of simple models; the one with the lowest cost sets the limit.

For: one resource of all containers. Not for: the moving-window recommender (autopilot_window.py) nor the
limits in force (autopilot.py).

Source: Rzadca et al., "Autopilot: workload autoscaling at Google", EuroSys 2020, §3.2.3. A model m is a decay
d_m and a margin M_m. s_j is the share of the update interval's samples in bucket j, whose value is its upper
end b_j. Every b_k is a candidate limit L:

    o(L) ← (1 − d_m)·o(L) + d_m·Σ_{j: b_j > L} s_j        overrun
    u(L) ← (1 − d_m)·u(L) + d_m·Σ_{j: b_j < L} s_j        underrun
    L'_m = argmin_L  w_o·o(L) + w_u·u(L) + w_ΔL·[L ≠ L'_m before],     L_m = L'_m + M_m
    c_m  ← (1 − d)·c_m + d·(w_o·o_t(L_m before) + w_u·u_t(L'_m before) + w_ΔL·[L_m ≠ L_m before])
    the limit is that of argmin_m  c_m + w_Δm·[m ≠ m before] + w_ΔL·[L_m ≠ limit before]

Our readings, where the paper leaves a choice:

- s is normalised to Σ s = 1, so that the weights mean the same at every update interval.
- M_m is a fraction of L'_m, so that one ensemble serves containers of any size, and both resources.
- A model pays for the limit that it recommended *before* the interval, by that interval's usage alone (o_t,
  u_t). It is judged by what it predicted, with one decay d that all models share.
- It pays underrun for L'_m, not for L_m, because the margin is headroom kept on purpose. u counts samples,
  not how far below they are. With L_m, every limit above the largest sample would cost the same, and the
  ensemble would stay with its slowest model when a load falls.
- Before its first limit a model or the ensemble has no "before". That term is then 0.
- Ties go to the lower limit and to the model listed first.

Both sums are linear in s. So one decayed histogram per decay is kept, and o and u are its cumulative sums.
Models that differ only in their margin share them. Memory per container and resource: 4·K·(D + 1) bytes for D
decays and K buckets (2.8 kB at K = 176, D = 3) + 4·D·(1 + M) + 12.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from control.allocator.histogram import Buckets
from control.allocator.model import Floats, Slots
from control.allocator.roster import Roster

_CHUNK_ROWS = 256
"""Containers per pass. Temporaries of 256 × 3 × 176 numbers then stay within a core's cache."""
_NONE = -1


@dataclass(frozen=True, slots=True)
class Ensemble:
    """The models (every decay with every margin) and the weights of their costs.

    Units: see AutopilotSettings.
    """

    decays: tuple[float, ...]
    margins: tuple[float, ...]
    overrun: float
    underrun: float
    limit_change: float
    model_change: float
    cost_decay: float


class EnsembleRecommender:
    """The ensemble's state for every slot. Call `observe` per sample and `recommend` per update."""

    def __init__(self, roster: Roster, buckets: Buckets, ensemble: Ensemble) -> None:
        self._buckets = buckets
        self._weights = ensemble
        self._decays = np.array(ensemble.decays, np.float32)
        decays, margins = len(ensemble.decays), len(ensemble.margins)
        self._used = 1
        """Number of buckets up to the highest one that was ever hit. Only these are computed."""
        self._interval = roster.column(0.0, np.float32, buckets.count)
        self.history = roster.column(0.0, np.float32, decays, buckets.count)
        self._choice = roster.column(_NONE, np.int32, decays)
        self.cost = roster.column(0.0, np.float32, decays, margins)
        self._model = roster.column(_NONE, np.int32)
        self._limit = roster.column(np.nan, np.float64)
        self._limits = buckets.ends[:, None] * (1.0 + np.array(ensemble.margins))
        self._at_or_below = np.searchsorted(buckets.ends, self._limits, side="right")

    def observe(self, slots: Slots, values: Floats, at_s: float) -> None:  # noqa: ARG002 - decays count updates
        """Take one usage sample (cores or bytes) per slot. Slots are distinct."""
        bucket = self._buckets.find(values)
        self._interval.values[slots, bucket] += 1.0
        self._used = max(self._used, int(bucket.max(initial=0)) + 1)

    def observe_all(self, slots: Slots, values: Floats, at_s: Floats) -> None:  # noqa: ARG002
        """Take samples one after the other, float64[samples, n]."""
        bucket = self._buckets.find(values)
        places = (np.arange(len(slots)) * self._buckets.count + bucket).ravel()
        counts = np.bincount(places, minlength=len(slots) * self._buckets.count)
        self._interval.values[slots] += counts.reshape(len(slots), -1).astype(np.float32)
        self._used = max(self._used, int(bucket.max(initial=0)) + 1)

    def recommend(self, slots: Slots, at_s: float) -> Floats:  # noqa: ARG002 - decays count updates
        """Return limits (float64[n]) at the end of an update interval. NaN: no sample, so no opinion."""
        answer = np.full(len(slots), np.nan)
        for start in range(0, len(slots), _CHUNK_ROWS):
            chunk = slots[start : start + _CHUNK_ROWS]
            usage = self._interval.values[chunk, : self._used]
            total = usage.sum(axis=1)
            seen = np.flatnonzero(total > 0)
            if seen.size:
                answer[start + seen] = self._step(chunk[seen], usage[seen] / total[seen, None])
            self._interval.values[chunk, : self._used] = 0.0
        return answer

    def _step(self, slots: Slots, usage: NDArray[np.float32]) -> Floats:
        """Return the new limits, float64[n]. usage: the shares s, float32[n, used]."""
        before = self._choice.values[slots]
        after = self._model_choices(slots, usage, before)
        self._pay(slots, usage, before, after)
        self._choice.values[slots] = after
        return self._choose(slots, self._limits[after])

    def _model_choices(
        self, slots: Slots, usage: NDArray[np.float32], before: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the bucket whose end is L'_m, int32[n, D]."""
        w = self._weights
        history = self.history.values[slots, :, : self._used]
        history += self._decays[:, None] * (usage[:, None, :] - history)
        self.history.values[slots, :, : self._used] = history
        up_to = np.cumsum(history, axis=2)
        over = up_to[:, :, -1:] - up_to
        under = up_to - history
        cost = np.float32(w.overrun) * over + np.float32(w.underrun) * under
        rows, columns = np.nonzero(before != _NONE)
        cost[rows, columns, before[rows, columns]] -= np.float32(w.limit_change)
        return np.asarray(np.argmin(cost, axis=2), np.int32)

    def _pay(
        self, slots: Slots, usage: NDArray[np.float32], before: NDArray[np.int32], after: NDArray[np.int32]
    ) -> None:
        """Charge each model for the interval, at the limit that it recommended before the interval."""
        w = self._weights
        up_to = np.zeros((len(slots), self._used + 1), np.float32)
        np.cumsum(usage, axis=1, out=up_to[:, 1:])
        row = np.arange(len(slots))[:, None, None]
        overrun = up_to[:, -1:, None] - up_to[row, np.minimum(self._at_or_below[before], self._used)]
        underrun = up_to[row, before[:, :, None]]
        paid = w.overrun * overrun + w.underrun * underrun + w.limit_change * (before != after)[:, :, None]
        cost = self.cost.values[slots]
        known = (before != _NONE)[:, :, None]
        self.cost.values[slots] = np.where(known, cost + w.cost_decay * (paid - cost), cost)

    def _choose(self, slots: Slots, limits: Floats) -> Floats:
        """Return the ensemble's limit, float64[n]. limits: L_m, float64[n, D, M]."""
        w = self._weights
        candidates = limits.reshape(len(slots), -1)
        cost = self.cost.values[slots].reshape(candidates.shape).astype(np.float64)
        limit, model = self._limit.values[slots], self._model.values[slots]
        others = np.arange(candidates.shape[1]) != model[:, None]
        cost += w.model_change * (others & (model != _NONE)[:, None])
        cost += w.limit_change * ((candidates != limit[:, None]) & ~np.isnan(limit)[:, None])
        best = np.argmin(cost, axis=1)
        chosen = candidates[np.arange(len(slots)), best]
        self._model.values[slots] = best
        self._limit.values[slots] = chosen
        return np.asarray(chosen, np.float64)
