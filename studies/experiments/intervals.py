"""How often a fleet should save: a sweep around Daly's interval. A question of ours, not the source's."""

from __future__ import annotations

from collections.abc import Iterator

from studies.experiments.measures import Pick, mean, scaled
from studies.experiments.model import Experiment, Figure

INTERVALS_S = (120.0, 300.0, 684.0, 1800.0, 3600.0, 7200.0)


def _figures(interval_s: float) -> Iterator[Figure]:
    where, aside = {"fabric.fleet.checkpoint_interval_s": interval_s}, f"{interval_s:,.0f} s"
    for scheme, title in (("none", "no scheme"), ("thorn", "THORN")):
        share = scaled(100, mean("effective_share", Pick(scheme, where)))
        yield Figure(f"effective_{scheme}@{aside}", f"Effective time, {title}", "%", 2, share, aside)
    lost = scaled(1e-6, mean("lost_cost", Pick("thorn", where)))
    yield Figure(f"lost@{aside}", "Money lost, THORN", "1,000,000 USD", 2, lost, aside)


INTERVALS = Experiment(
    name="intervals",
    title="How often 16,384 GPUs should save",
    scenario="intervals.yaml",
    method=(
        "As `fleet`, with a given interval of work between two saves. 684 s is Daly's for THORN's deaths "
        "(a save takes 20 s)."
    ),
    figures=tuple(figure for interval_s in INTERVALS_S for figure in _figures(interval_s)),
    discussion=(
        "Of the intervals tried Daly's is the best, with a scheme and without; 300 s or 1,800 s cost 1.5 to "
        "3 points of the time. What THORN saves grows with the interval, since each death that it spares "
        "would have lost half of one.",
    ),
    curve="Work between two saves",
)
