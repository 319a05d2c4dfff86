"""The constants of the contention of spotDNN's predictor, fitted to short profiles of a job.

For: α1 and β1 from the bandwidth of workers that contend. Not for: predicting with them (spotdnn.py), nor
running profiles. Source: spotDNN (IWQoS 2023), §III. Readings: the inversion that gives the contention share,
and the least R².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from control.jobs import Real, Whole
from twinbed import ScenarioError

LEAST_R2 = 0.5
"""Least R² of a fit that is accepted (our reading)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Fitted constants.

    what: name in messages; values: the constants, float64[c]. residuals: measured less fitted, in the unit of
    the measurements, float64[k]. r2: share of the variance that is explained; 1 if the measurements do not
    vary and the fit is exact.
    """

    what: str
    values: Real
    residuals: Real
    r2: float

    @property
    def refusal(self) -> str:
        """Reason why the constants must not be used for planning; empty if they may."""
        if self.r2 >= LEAST_R2:
            return ""
        return f"infeasible: the fit of the {self.what} explains {self.r2:.2f} of the variance; profile again"


def fit_contention(workers: Whole, bandwidth_mb_s: Real, *, server_mb_s: float, worker_mb_s: float) -> Fit:
    """Return α1 and β1 of the contention share P = α1 · √n + β1.

    workers: number of workers of each cluster, int64[k]; bandwidth_mb_s: bandwidth of one of its workers,
    MB/s, float64[k]. Clusters without contention are left out. Raises ScenarioError if fewer than two sizes
    are left.
    """
    equal = server_mb_s / workers
    told = worker_mb_s > equal
    if np.unique(workers[told]).size < 2:
        raise ScenarioError("contention: measured at one point only; measure at two or more")
    share = (worker_mb_s - bandwidth_mb_s[told]) / (worker_mb_s - equal[told])
    design = np.column_stack((np.sqrt(workers[told]), np.ones_like(share)))
    values: Real = np.asarray(np.linalg.lstsq(design, share)[0], dtype=np.float64)
    residuals = share - design @ values
    around = float(((share - share.mean()) ** 2).sum())
    left = float((residuals**2).sum())
    r2 = 1 - left / around if around > 0 else float(np.allclose(share, design @ values))
    return Fit("contention", values, residuals, r2)
