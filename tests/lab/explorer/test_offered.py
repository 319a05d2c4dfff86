"""The preview of a load: the rates that a run will have, at the same small cost for every load."""

import tracemalloc

import numpy as np
import pytest
from pydantic import TypeAdapter

from lab.containers.input.services.arrivals import PRESETS, ArrivalSpec, generate
from lab.explorer import services_chooser
from lab.explorer.selection import limits

PREVIEW_BYTES = 8 << 20
"""Far more than a preview takes, and far less than the arrivals of the largest load, some GiB."""


@pytest.mark.parametrize("preset", PRESETS)
def test_the_largest_load_is_previewed_without_its_arrivals(preset):
    tracemalloc.start()
    frame = services_chooser.rates(preset, limits("scale")[1], limits("duration_s")[1], 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < PREVIEW_BYTES
    assert 0 < len(frame) <= 300


@pytest.mark.parametrize("preset", ["fixed", "exponential", "burst"])
@pytest.mark.parametrize("duration_s", [45.0, 1000.5])
def test_the_rates_are_those_of_a_runs_arrivals(preset, duration_s):
    spec = TypeAdapter(ArrivalSpec).validate_python({"kind": preset, "scale": 2.0})
    drawn = generate(spec, duration_s, [1.0], np.random.SeedSequence(3))
    frame = services_chooser.rates(preset, 2.0, duration_s, 0)
    edges = np.append(frame["at_s"], duration_s)
    expected = frame["rps"] * np.diff(edges)
    counts, _ = np.histogram(drawn.at_s, edges)
    # Five standard deviations of a Poisson count.
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()


def test_wandering_rates_stay_between_their_bounds():
    frame = services_chooser.rates("alibaba_like", 2.0, 600.0, 0)
    assert frame["rps"].between(2 * 56, 2 * 548).all()
    assert frame["rps"].std() > 0
