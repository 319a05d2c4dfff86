"""Random valid traces, small and awkward: absent spans, missing quantities, any start and interval."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from traces.schema import UsageTrace

_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=8)


@st.composite
def usage_traces(draw: st.DrawFn, *, max_rows: int = 12, always_there: bool = False) -> UsageTrace:
    rows, columns = draw(st.integers(1, max_rows)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    present = random.random((rows, columns)) < (1.0 if always_there else 0.8)

    def quantity(scale: float) -> np.ndarray:
        values = random.gamma(0.5, scale, (rows, columns)) * (random.random((rows, columns)) < 0.8)
        return np.where(present, values, 0.0)

    return UsageTrace(
        containers=tuple(draw(st.lists(_NAMES, min_size=columns, max_size=columns, unique=True))),
        apps=tuple(draw(st.lists(_NAMES, min_size=columns, max_size=columns))),
        start_s=draw(st.sampled_from([0.0, -3.25, 1.7e9 + 0.123])),
        interval_s=draw(st.sampled_from([0.1, 1.0, 7.5, 60.0])),
        cpu_cores=quantity(1.0),
        memory_bytes=np.floor(quantity(1e9)),
        present=present,
        rx_bytes=draw(st.sampled_from([None, quantity(1e6)])),
        tx_bytes=draw(st.sampled_from([None, quantity(1e6)])),
        throttled_s=draw(st.sampled_from([None, quantity(0.01)])),
        metadata=draw(st.dictionaries(_NAMES, _NAMES, max_size=2)),
        notes=tuple(draw(st.lists(_NAMES, max_size=2))),
    )


def same(one: UsageTrace, other: UsageTrace) -> bool:
    """Equal in every field, arrays to the bit."""
    for name in UsageTrace.__slots__:
        left, right = getattr(one, name), getattr(other, name)
        if isinstance(left, np.ndarray):
            if right is None or left.dtype != right.dtype or left.tobytes() != right.tobytes():
                return False
        elif left != right:
            return False
    return True
