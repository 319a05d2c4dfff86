"""One performance figure, as `python -m benchmarks` prints it."""

from __future__ import annotations


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
    """A JSON object: the figure, what it is compared with in the same run and its value in the same unit, how
    many times better the figure is (`ratio` > 1), what was aimed at; more: what it depends on."""
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


def _short(value: float) -> float:
    """Four significant digits, whole above 1000."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
