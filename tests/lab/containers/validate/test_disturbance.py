"""Which runs of a testbed are taken for disturbed."""

import pytest

from lab.containers.validate import present
from lab.containers.validate.both import judged
from lab.containers.validate.measures import cpu_per_request_s, divided, undisturbed
from lab.runs.store import Run, RunStore
from tests.lab.sample_cells import as_testbed
from tests.lab.sample_runs import publish


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
