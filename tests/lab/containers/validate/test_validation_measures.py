import math

import numpy as np
import pytest

from lab.containers.validate.measures import measures
from lab.containers.validate.rule import QUANTITIES
from lab.runs.runner import run_scenario
from lab.runs.store import RunStore
from tests.lab.sample_runs import publish


def test_a_run_without_clients_has_work_done_in_place_of_throughput(tmp_path):
    run = publish(RunStore(tmp_path), metrics={"throughput_rps": math.nan, "latency_p50_s": math.nan})
    found = measures(run)
    assert set(found) == {each.key for each in QUANTITIES}
    # Two containers of half a core each, a limit of one core, half a GiB of one held.
    assert found["work_cores"] == pytest.approx(1.0)
    assert found["cpu_slack_mean_cores"] == pytest.approx(0.5)
    assert found["memory_slack_mean_mib"] == pytest.approx(512.0)
    assert math.isnan(found["throughput_rps"])


def test_memory_that_nobody_knows_has_no_slack(tmp_path):
    run = publish(RunStore(tmp_path), metrics={"memory_slack_p50_mib": math.nan})
    assert math.isnan(measures(run)["memory_slack_mean_mib"])


def test_a_run_with_clients_has_throughput_and_latency(asked):
    _, runs = asked
    for run in runs:
        found = measures(run)
        assert math.isnan(found["work_cores"])
        assert found["throughput_rps"] == run.metrics["throughput_rps"]
        frame = run.frame("periods")
        here = frame[frame["up"] & np.isfinite(frame["quota_cores"])]
        mean = (here["quota_cores"].astype(float) - here["usage_cores"].astype(float)).mean()
        assert found["cpu_slack_mean_cores"] == pytest.approx(mean)


def test_a_run_without_limits_has_no_slack(tmp_path, trace_path):
    from lab.containers.input.whatif import whatif_scenario

    run = run_scenario(whatif_scenario(trace_path, ["unlimited"]), RunStore(tmp_path))[0]
    assert math.isnan(measures(run)["cpu_slack_mean_cores"])
