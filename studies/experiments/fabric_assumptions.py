"""The assumptions behind the fabric's experiments, to be changed one at a time.

For: the list that T2, T3, T4 and T5 share. Not for: running them (sensitivity.py). None of the declared
values was chosen by its results.
"""

from __future__ import annotations

from studies.experiments.model import Change


def _set(title: str, **values: float) -> Change:
    """Values of the calibration, as SECTION__KEY."""
    return Change(
        title,
        tuple(f"fabric.values.{key.replace('__', '.')}={value}" for key, value in values.items()),
    )


EDGE: tuple[Change, ...] = (
    _set("BFD 3×50 ms", bfd__multiplier=3.0),
    _set("BFD 3×20 ms", bfd__interval_s=0.02, bfd__multiplier=3.0),
    _set("BFD 3×10 ms", bfd__interval_s=0.01, bfd__multiplier=3.0),
    _set("BFD 3×300 ms", bfd__interval_s=0.3, bfd__multiplier=3.0),
    _set("no BGP hold", control__hold_s=0.0),
    _set("BFD 3×10 ms, no BGP hold", bfd__interval_s=0.01, bfd__multiplier=3.0, control__hold_s=0.0),
)

ACK_2_14, ACK_2_18, ACK_2_20 = (
    _set(f"ACK timeout 2^{exponent}", queue_pair__timeout=float(exponent)) for exponent in (14, 18, 20)
)
"""Those that a calibration has already are left out where it holds."""

LINK: tuple[Change, ...] = (
    _set("MTU 1024 B", queue_pair__mtu_bytes=1024.0),
    _set("delay ×5", link__delay_s=5e-6),
)

SIGNAL = Change("carrier signal", ("fabric.faults.silent=false",))
