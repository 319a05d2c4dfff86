"""The agent's half of memory reclaim: which limits may be lowered, and to what.

Shared by both backends, so that twin and testbed shrink by the same rule. Source: Escra, SPEC.md §1:
every container with `limit > usage + δ` is shrunk to `usage + δ`.
"""

from __future__ import annotations

import numpy as np

from control.allocator.model import PAGE_BYTES, Bytes, Ids


def shrink(ids: Ids, limit_bytes: Bytes, usage_bytes: Bytes, margin_bytes: int) -> tuple[Ids, Bytes]:
    """Containers to shrink and their new limits (bytes, rounded up to whole pages).

    ids, limit_bytes, usage_bytes: int64[n]; margin_bytes: δ ≥ 0. Returns (int64[m], int64[m]), m ≤ n,
    each new limit below the old one and at least usage + δ.
    """
    wanted = usage_bytes + margin_bytes
    wanted += -wanted % PAGE_BYTES
    lower = np.flatnonzero(wanted < limit_bytes)
    return ids[lower], wanted[lower]
