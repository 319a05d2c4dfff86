"""Makes the market, the terms and the timing of a run: from a trace, or drawn at random.

For: CloudInput to control.market.course. Not for: running. Spells of availability are log-normal, because
measured ones have no typical length (docs/decisions/0046); prices step by a log-normal factor and stay
between a tenth of the on-demand price and all of it, unless they begin outside. Changes fall on whole
minutes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.market.course import Market, Timing, Zone
from control.market.levels import Levels
from control.market.ports import Real, Terms
from lab.ask.calibration import Calibration
from lab.cloud.input.market import CloudInput, DrawnInput, ZoneInput
from lab.cluster.calibrate.values import PHASES, phases_s
from traces.readers import prices
from twin.cloud.deadline import MOST_STEPS, Windows, optimum_usd
from twinbed import ScenarioError

MINUTE_S, HOUR_S = 60.0, 3600.0
_LEAST_SHARE = 0.1
"""Least drawn price of spot beside on demand."""
_MOMENTS = 1024
"""Number of moments of a trace that are drawn at once."""
_BEYOND = 1.5
"""Length of drawn markets as a multiple of the deadline, because a real job may be late."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The data that all runs of a question with this seed share.

    work_s: work of the job, as in `terms`, s.
    inputs: files read.
    sha256: hash of their contents.
    """

    asked: CloudInput
    market: Market
    terms: Terms
    timing: Timing
    inputs: tuple[dict[str, str], ...]
    sha256: str

    @property
    def optimum_usd(self) -> float:
        """The least cost in hindsight, US$; NaN where twin.cloud.deadline has none.

        It has decisions at every minute, starts rounded down to whole minutes, no lost work, and free moves
        and probes. Machines that a zone has in a part of a minute count in all of it, at the least price. So
        no policy costs less.
        """
        market, terms = self.market, self.terms
        minutes = math.ceil(terms.deadline_s / MINUTE_S)
        steps = minutes * (terms.work_s / MINUTE_S) * (2 * len(market.zones) + 1)
        if market.billing_s < MINUTE_S or steps > MOST_STEPS:
            return math.nan
        at = [float(minute) * MINUTE_S for minute in range(minutes + 1)]
        there = [[zone.available.within(t, t + MINUTE_S).max() for zone in market.zones] for t in at]
        usd_h = [[zone.spot_usd_h.within(t, t + MINUTE_S).min() for zone in market.zones] for t in at]
        work_s, restart_s = (value // MINUTE_S * MINUTE_S for value in (terms.work_s, self.timing.start_s))
        bound = Terms(
            max(work_s, MINUTE_S),
            minutes * MINUTE_S,
            restart_s,
            MINUTE_S,
            market.on_demand_usd_h * market.machines,
        )
        speeds = [zone.speed for zone in market.zones]
        windows = Windows(np.array([there]) >= market.machines, np.array([usd_h]) * market.machines)
        return float(optimum_usd(bound, windows, speeds)[0])


def drawn(asked: CloudInput, seed: int, calibration: Calibration) -> Drawn:
    """Return a seed's market. Raises TraceError for a file that is wrong, ScenarioError for a deadline that
    cannot be met."""
    base = asked.types[asked.on_demand]
    timing = timing_of(asked, calibration)
    job = asked.job
    every_s = job.checkpoint_s / base.speed
    save_s = 0.0 if asked.emulation else job.save_s
    work_s = job.hours * HOUR_S / base.speed * (1 + save_s / every_s)
    zones, usd = tuple(asked.zones.values()), job.checkpoint_gb * asked.egress_usd_gb
    several = len({zone.region for zone in asked.zones.values()}) > 1
    restart_s = timing.start_s + timing.stop_s + timing.move_s * several
    # A policy compares prices of one machine, so it is told one machine's share of a move.
    share_usd = usd / job.machines
    try:
        terms = Terms(
            work_s,
            job.deadline_hours * HOUR_S,
            restart_s,
            asked.tick_s,
            base.on_demand_usd_h,
            tuple(tuple(share_usd * (one.region != other.region) for other in zones) for one in zones),
        )
    except ScenarioError as error:
        raise ScenarioError(f"cloud.job.deadline_hours: {error}") from None
    root = np.random.SeedSequence(seed)
    if asked.trace is None:
        series = {
            name: _drawn(asked.drawn, zone, asked, terms.deadline_s * _BEYOND, own)
            for (name, zone), own in zip(asked.zones.items(), root.spawn(len(zones)), strict=True)
        }
        inputs: tuple[dict[str, str], ...] = ()
        digest = ""
    else:
        path = Path(asked.trace)
        series = _cut(asked, path, terms.deadline_s, np.random.default_rng(root))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        inputs = ({"role": "market", "source": path.name, "sha256": digest},)
    sold = tuple(
        Zone(name, zone.region, zone.type, asked.types[zone.type].speed / base.speed, *series[name])
        for name, zone in asked.zones.items()
    )
    market = Market(
        sold,
        asked.on_demand,
        base.on_demand_usd_h,
        job.machines,
        asked.notice_s,
        asked.billing_s,
        usd,
    )
    return Drawn(asked, market, terms, timing, inputs, digest)


def timing_of(asked: CloudInput, calibration: Calibration) -> Timing:
    """Return the job's durations. An emulated machine takes at least as long to start and to leave as real
    processes do, multiplied by the time compression."""
    start_s, stop_s, save_s = asked.start_s, asked.stop_s, asked.job.save_s
    if asked.emulation is not None:
        first_s, again_s, leave_s = (phases_s(calibration, what)[0] for what in PHASES)
        start_s = max(start_s, min(first_s, again_s) * asked.emulation.compression)
        stop_s = max(stop_s, leave_s * asked.emulation.compression)
        save_s = 0.0
    every_s = asked.job.checkpoint_s / asked.types[asked.on_demand].speed
    return Timing(start_s, stop_s, asked.move_s, every_s + save_s, asked.saves_at_notice)


def _drawn(
    drawn: DrawnInput, zone: ZoneInput, asked: CloudInput, length_s: float, own: np.random.SeedSequence
) -> tuple[Levels, Levels]:
    """Return number of available machines and price, US$/h, of a zone over length_s seconds.

    A longer series begins like a shorter one, so that runs with other deadlines meet the same market.
    """
    spells, changing = map(np.random.default_rng, own.spawn(2))
    there = bool(spells.random() < drawn.up_h / (drawn.up_h + drawn.down_h))
    at_s, times, values = 0.0, [], []
    while at_s < length_s:
        times.append(at_s)
        values.append(float(asked.job.machines * there))
        mean_s = (drawn.up_h if there else drawn.down_h) * HOUR_S
        factor = math.exp(drawn.spread * spells.standard_normal() - drawn.spread**2 / 2)
        at_s += max(round(mean_s * factor / MINUTE_S), 1) * MINUTE_S
        there = not there
    step_s = max(round(drawn.price_every_h * HOUR_S / MINUTE_S), 1) * MINUTE_S
    moments = np.arange(math.ceil(length_s / step_s) + 1) * step_s
    changes = drawn.price_step * changing.standard_normal(moments.size)
    changes[0] = 0.0
    base, highest = zone.spot_usd_h, asked.types[zone.type].on_demand_usd_h
    low, high = min(_LEAST_SHARE * highest, base), max(highest, base)
    usd_h: Real = np.clip(base * np.exp(np.cumsum(changes)), low, high)
    at: Real = np.asarray(moments, np.float64)
    return Levels(np.array(times), np.array(values)), Levels(at, usd_h)


def _cut(
    asked: CloudInput, path: Path, deadline_s: float, random: np.random.Generator
) -> dict[str, tuple[Levels, Levels]]:
    """Return the zones of a trace from a random moment on, which leaves time until the deadline.

    Moments are drawn in the whole trace until one does. So other deadlines begin at the same moment, where
    they can.
    """
    found = prices.market(path)
    if missing := [name for name in asked.zones if name not in found]:
        raise ScenarioError(f"{path}: no rows of zone {missing[0]!r}; it has {', '.join(found)}")
    most, needed = max(float(found[name][1].max()) for name in asked.zones), asked.job.machines
    if 0 < most < needed:
        raise ScenarioError(
            f"{path}: column available is at most {most:g}, and cloud.job.machines is {needed}; the column "
            "counts machines: state their number, or ask for fewer"
        )
    begin_s = max(found[name][0][0] for name in asked.zones)
    end_s = max(t_s[-1] for t_s, _, _ in found.values())  # a zone has no row while nothing changes
    spare_s = end_s - begin_s - deadline_s
    if spare_s < 0:
        raise ScenarioError(
            f"{path}: {(end_s - begin_s) / HOUR_S:.1f} h long, and the deadline is after "
            f"{deadline_s / HOUR_S:g} h; give a shorter deadline or a longer trace"
        )
    minutes, last = int((end_s - begin_s) // MINUTE_S), int(spare_s // MINUTE_S)
    moments = np.empty(0, np.int64)
    while not moments.size:
        drawn = random.integers(minutes + 1, size=_MOMENTS)
        moments = drawn[drawn <= last]
    first_s = begin_s + float(moments[0]) * MINUTE_S
    return {
        name: (_from(found[name][0], found[name][1], first_s), _from(found[name][0], found[name][2], first_s))
        for name in asked.zones
    }


def _from(t_s: Real, value: Real, first_s: float) -> Levels:
    """Return a series from a moment on, which becomes 0 s."""
    place = int(np.searchsorted(t_s, first_s, side="right")) - 1
    moments = np.append(0.0, t_s[place + 1 :] - first_s)
    return Levels(moments, value[place:])
