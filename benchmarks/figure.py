"""One performance figure, as `python -m benchmarks` prints it, and the timing of work."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from statistics import median


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    baseline: str,
    baseline_value: float,
    ratio: float,
    target: str,
    **more: object,
) -> dict[str, object]:
    """Return a JSON object with the figure and its baseline.

    baseline, baseline_value: the comparison in the same run, in the same unit. ratio: factor by which the
    figure is better (> 1: better). target: the aim. more: conditions of the figure.
    """
    return {
        "name": name,
        "value": _short(value),
        "unit": unit,
        "baseline": baseline,
        "baseline_value": _short(baseline_value),
        "ratio": _short(ratio),
        "target": target,
        **more,
    }


def median_s(
    work: Callable[..., object], repeats: int, prepare: Callable[[], tuple[object, ...]] = tuple
) -> tuple[float, float]:
    """Return the median seconds of wall time and of CPU time, which differ on a shared machine.

    prepare: returns the arguments of each call of `work`; it is not timed.
    """
    wall, cpu = [], []
    for _ in range(repeats):
        arguments = prepare()
        gc.collect()
        began, began_cpu = time.perf_counter(), time.process_time()
        work(*arguments)
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return median(wall), median(cpu)


def _short(value: float) -> float:
    """Round to four significant digits, or to a whole number above 1000."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
