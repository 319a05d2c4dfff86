import math

import numpy as np
import pytest

from control.services import RequestStatus as Status
from lab.ask.scenario import build, expand
from lab.containers.input.replay import Replay
from lab.containers.input.sections import Price, machine_of
from lab.containers.input.services.prepare import load_source
from lab.containers.real.outcome import outcome, request_log
from lab.containers.run.figures import figures
from testbed.containers.load.plan import LoadResult
from tests.lab.sample_observed import observed


def _replay(periods: int) -> Replay:
    services = {"app": "teastore", "arrivals": {"kind": "fixed", "rate_rps": 20}, "duration_s": periods / 10}
    scenario = build({"name": "tea", "services": services | {"hosts": 1}})
    spec = expand(scenario)[0]
    return load_source(scenario).prepare(scenario, machine_of(spec), np.random.SeedSequence(0))


def test_what_a_kernel_does_not_tell_has_no_figure():
    replay = _replay(20)
    names = replay.workload.names
    load = LoadResult(
        at_s=np.array([0.1, 0.2, 0.3]),
        kind=np.zeros(3, np.int64),
        end_s=np.array([0.15, 0.3, math.nan]),
        status=np.array([Status.OK, Status.OK, Status.PENDING], np.uint8),
        late_s=np.zeros(3),
        cpu_s=0.01,
        complete=True,
    )
    log = request_log(load, len(names))
    found = figures(replay, outcome(observed(names, 20), 20, log), Price()).summary
    for key in ("lateness_p50_s", "undone_core_s", "turned_away", "makespan_s", "cold_starts"):
        assert math.isnan(found[key])
    assert found["throughput_rps"] == pytest.approx(1.0)
    # The request without an answer is later than both answers: 0.05 and 0.1 s.
    assert found["latency_p50_s"] == pytest.approx(0.1)
    assert found["cpu_slack_p50_cores"] == pytest.approx(0.2)
    assert found["memory_slack_p50_mib"] == pytest.approx(24.0)
    assert found["throttled_share"] == pytest.approx(0.25)
    assert found["oom_events"] == 1


def test_a_run_that_ended_early_is_filled_up_and_a_longer_one_is_cut():
    short, long = (outcome(observed(("a", "b"), length), 20) for length in (15, 30))
    assert short.series.up.shape == long.series.up.shape == (20, 2)
    assert short.series.up[:15].all()
    assert not short.series.up[15:].any()
    assert np.isnan(short.series.demand_cores).all()


def test_events_after_the_end_of_the_time_line_are_left_out():
    assert outcome(observed(("a",), 20), 20).events.kind == ["join", "oom"]
