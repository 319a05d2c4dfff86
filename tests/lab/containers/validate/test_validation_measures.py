import math

import numpy as np
import pytest

from lab.containers.validate import present
from lab.containers.validate.both import judged
from lab.containers.validate.measures import cpu_per_request_s, divided, measures, undisturbed
from lab.containers.validate.rule import QUANTITIES
from lab.runs.runner import run_scenario
from lab.runs.store import Run, RunStore
from tests.lab.sample_cells import as_testbed
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


@pytest.fixture
def equals(tmp_path):
    """A function: throughputs → equal runs of the testbed. Their containers use one core, so that each
    throughput says how much CPU a request took."""
    store = RunStore(tmp_path)
    plain = publish(store, statuses=("ok",))

    def made(*throughputs: float) -> list[Run]:
        runs = []
        for repeat, throughput in enumerate(throughputs):
            run = as_testbed(plain, repeat)
            metrics = run.manifest["metrics"] | {"throughput_rps": throughput}
            runs.append(Run(run.path, run.manifest | {"metrics": metrics, "id": f"run-{repeat}"}))
        return runs

    return made


def test_the_cost_of_a_request_is_the_containers_cpu_by_the_answers(equals):
    assert cpu_per_request_s(equals(50.0)[0]) == pytest.approx(0.02)


def test_a_run_whose_requests_took_more_cpu_is_disturbed(equals):
    runs = equals(100.0, 80.0, 90.0, 88.0)
    assert undisturbed(runs) == [runs[0], runs[2], runs[3]]
    assert divided(runs) == ([runs[0], runs[2], runs[3]], [runs[1]])


def test_three_count_at_least_those_that_took_least(equals):
    runs = equals(100.0, 50.0, 80.0, 40.0)
    assert divided(runs) == (runs[:3], [runs[3]])
    assert divided(runs[:2]) == (runs[:2], [])


def test_what_nobody_asks_anything_of_is_never_disturbed(tmp_path):
    runs = [as_testbed(publish(RunStore(tmp_path)), repeat) for repeat in range(2)]
    assert undisturbed(runs) == runs


def test_the_verdict_says_what_was_left_out_and_what_would_have_been(equals):
    runs = equals(100.0, 99.0, 101.0, 50.0)
    cell = judged("tea", "fixed", "escra", [runs[0]], runs)
    assert len(cell.testbed) == 3
    (text,) = present.disturbed([cell])
    assert text.startswith("1 of 4 runs on the testbed were disturbed")
    assert list(present.disturbed([judged("tea", "fixed", "escra", [runs[0]], runs[:3])])) == []
