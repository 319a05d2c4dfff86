"""A CPU request as the kernel's CPU weight, by Kubernetes' formulas.

For: `shares` (cgroup v1, cpu.shares) and `weight` (cgroup v2, cpu.weight). Not for: writing them, nor
dividing CPU among containers (twin/containers/sharing.py).

Source: kubernetes/kubernetes, pkg/kubelet/cm/helpers_linux.go (MilliCPUToShares), and KEP-2254 for cgroup v2.
Newer container runtimes convert shares by a quadratic formula (opencontainers/cgroups,
ConvertCPUSharesToCgroupV2Value), by which a request of one core weighs as much as a group without a request.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import Floats

SHARES_PER_CORE = 1024
"""cpu.shares of a request of one core, which is also the kernel's default."""
DEFAULT_WEIGHT = 100.0
"""The kernel's own cpu.weight of a group (Documentation/admin-guide/cgroup-v2.rst): 1,024 shares in v1."""
LEAST_SHARES, MOST_SHARES = 2, 1 << 18
"""The kernel's bounds of cpu.shares (kernel/sched/sched.h, MIN_SHARES and MAX_SHARES)."""

_MILLI = 1000
_ROUNDING = 1e-6
"""Millicores by which a float may differ from the whole millicore that was meant."""


def shares(cores: Floats) -> NDArray[np.int64]:
    """Return cpu.shares of CPU requests (cores ≥ 0, float64[n]), which are rounded up to whole millicores."""
    milli = np.ceil(np.minimum(cores * _MILLI, MOST_SHARES) - _ROUNDING).astype(np.int64)
    return np.clip(milli * SHARES_PER_CORE // _MILLI, LEAST_SHARES, MOST_SHARES)


def weight(of_shares: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return cpu.weight (1 to 10,000, int64[n]) of cpu.shares."""
    return 1 + (of_shares - LEAST_SHARES) * 9999 // (MOST_SHARES - LEAST_SHARES)
