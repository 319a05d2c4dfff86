"""Questions about two racks that spines join, and what the twin answers beside one rack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.ask.scenario import expand, load, with_overrides
from lab.fabric.calibrate.values import fabric, load_calibration
from lab.fabric.real.settings import Road, Setting
from lab.fabric.validate.both import asked_of
from lab.fabric.validate.judge import RESOLUTION_S, simulated
from twinbed import ScenarioError

SCENARIO = Path("scenarios/T5.yaml")
RACKS = "fabric.topology={hosts: 4, tors: 4, racks: 2, spines: 2}"


def test_a_question_about_racks_is_asked_of_a_fabric_of_two_racks() -> None:
    question = ["policies=[thorn]", "vary={}", "fabric.faults={kind: flapping}", RACKS]
    (spec, *_) = expand(with_overrides(load(SCENARIO), question))
    asked, _ = asked_of(spec)
    assert asked.key == "real-time-5x50-both-2spines"
    plan = asked.plan("racks")
    assert (plan.hosts, plan.tors, plan.racks, plan.spines) == (2, 4, 2, 2)
    fast, _ = asked_of(expand(with_overrides(spec.scenario, ["fabric.fast_path=true"]))[0])
    assert fast.key == "fast-5x50-both-2spines"


def test_between_racks_traffic_into_a_host_waits_for_the_spines() -> None:
    control = fabric(load_calibration(), {"stalls": {"per_s": 0.0}}).control
    one = simulated(Setting(Road.REAL_TIME, 5, 50), control)
    two = simulated(Setting(Road.REAL_TIME, 5, 50, spines=2), control)
    for way in ("out", "into"):
        assert np.median(getattr(two, way)) == pytest.approx(np.median(getattr(one, way)), abs=RESOLUTION_S)
    # ToR and spine hold as ToR and host do within a rack; the host itself needs one hold less.
    assert np.median(two.into) - np.median(two.out) == pytest.approx(control.hold_s, abs=RESOLUTION_S)


def test_an_interval_that_frr_cannot_have_is_refused() -> None:
    question = ["policies=[thorn]", "vary={}", "fabric.values.bfd.interval_s=0.0504"]
    (spec, *_) = expand(with_overrides(load(SCENARIO), question))
    with pytest.raises(ScenarioError, match=r"bfd\.interval_s: 0\.0504: FRR counts whole .*; give 0\.05"):
        asked_of(spec)
