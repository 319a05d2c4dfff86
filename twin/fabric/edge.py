"""A fleet's attachments to the network: which uplinks work, and what is lost when some break.

For: compiled steps of fleet.py. Not for: detection and routing (failover.py), which give gaps_s. up_again_s:
float64[H, U], since when, or from when on, each uplink works.
"""

from __future__ import annotations

import numpy as np

from twin.containers.compiled import kernel
from twin.fabric.model import Flags, Floats, Whole


@kernel
def cut(
    up_again_s: Floats,
    rows: Whole,
    hit: Flags,
    now_s: float,
    until_s: float,
    gaps_s: Floats,
    flows: int,
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Takes the uplinks `hit` (bool[r, U]) of `rows` (int64[r]) away until until_s.

    Returns for how long traffic OUT and IN is lost, by the attachment that loses the most: a gap drawn from
    gaps_s (float64[n, 2]) where one of `flows` connections was on a lost uplink; without a working uplink the
    time until the first repair.
    """
    out_s, in_s = 0.0, 0.0
    for place in range(len(rows)):
        row = rows[place]
        lived, lost, first_s = 0, 0, np.inf
        for uplink in range(up_again_s.shape[1]):
            works = up_again_s[row, uplink] <= now_s
            lived += works
            lost += works and hit[place, uplink]
            if hit[place, uplink]:
                up_again_s[row, uplink] = max(up_again_s[row, uplink], until_s)
            first_s = min(first_s, up_again_s[row, uplink])
        if lost == 0:
            continue
        if first_s > now_s:
            out_s, in_s = max(out_s, first_s - now_s), max(in_s, first_s - now_s)
            continue
        missed = (1.0 - lost / lived) ** flows
        drawn = rng.integers(0, len(gaps_s))
        if rng.random() >= missed:
            out_s = max(out_s, min(gaps_s[drawn, 0], until_s - now_s))
        if rng.random() >= missed:
            in_s = max(in_s, min(gaps_s[drawn, 1], until_s - now_s))
    return out_s, in_s


@kernel
def working(up_again_s: Floats, rows: Whole, now_s: float) -> Whole:
    """int64[r]: how many uplinks of each of `rows` work."""
    found = np.zeros(len(rows), np.int64)
    for place in range(len(rows)):
        for uplink in range(up_again_s.shape[1]):
            found[place] += up_again_s[rows[place], uplink] <= now_s
    return found
