import dataclasses

import numpy as np
import pytest

from control.services import Draw
from lab.ask.scenario import expand
from lab.containers.calibrate.values import Program, load_calibration, write
from lab.containers.input.sections import machine_of
from lab.containers.input.services.application import AppSpec
from lab.containers.input.services.costs import beside, with_program
from lab.containers.input.services.graph import compile_graph
from lab.containers.input.services.prepare import load_source
from testbed.containers.services.footprint import TRIM_S
from tests.lab.sample_services import question, write_app

COSTS = Program(
    visit_s=1e-3, stage_s=2e-4, call_s=5e-4, dilation=1.5, wake_s=3e-4, wake_tau_s=0.02, network_s=1e-4,
    base_bytes=float(100 << 20), kernel_bytes=float(1 << 20), loop_cores=0.1, client_request_s=1e-3,
    client_s=2e-4, stolen=0.1, imbalance=0.5, moves=0.25,
)  # fmt: skip
NOTHING = Program(0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0002, *[0.0] * 8)
APP = AppSpec.model_validate(
    {
        "name": "a",
        "services": {
            "web": {
                "memory": {"base_mib": 10},
                "handlers": {
                    "page": {
                        "cpu_ms": 4,
                        "calls": ["db.find", [{"call": "db.add", "times": 2, "probability": 0.5}]],
                    }
                },
            },
            "db": {
                "memory": {"base_mib": 300},
                "handlers": {
                    "find": {"cpu_ms": 2, "distribution": "fixed"},
                    "add": {"cpu_ms": 2, "distribution": "exponential"},
                },
            },
        },
        "requests": {"page": {"handler": "web.page"}},
    }
)


def test_visits_and_calls_cost_what_the_program_takes():
    graph = with_program(compile_graph(APP), COSTS).graph
    # 4 ms · 1.5 + 1 ms + 1.75 stages with calls · 0.2 ms + 2 calls · 0.5 ms; 2 ms · 1.5 + 1 ms.
    assert graph.mean_s == pytest.approx([8.35e-3, 4e-3, 4e-3])
    assert (graph.wake_s, graph.wake_tau_s) == (3e-4, 0.02)
    assert set(graph.network_s) == {1e-4}
    # The idle program is larger than what `web` declares; `db` declares more, and the kernel adds its own.
    assert graph.base_bytes.tolist() == [100 << 20, 301 << 20]
    assert graph.keep_s == TRIM_S


def test_the_overhead_varies_nothing():
    graph = with_program(compile_graph(APP), COSTS).graph
    assert graph.draw.tolist() == [Draw.LOGNORMAL, Draw.FIXED, Draw.LOGNORMAL]
    # Standard deviations are those of the dilated demand: 0.5 · 6 ms and, exponential, 3 ms.
    assert (graph.cv * graph.mean_s)[[0, 2]] == pytest.approx([3e-3, 3e-3])


def test_a_program_that_costs_nothing_changes_nothing_that_is_declared():
    plain, costed = compile_graph(APP).graph, with_program(compile_graph(APP), NOTHING).graph
    assert np.array_equal(plain.mean_s, costed.mean_s)
    assert np.array_equal(plain.base_bytes, costed.base_bytes)


def _prepared(app, *, path=None, **within):
    scenario = question(app, within=within, host_cores=2.0, calibration=path)
    spec = expand(scenario)[0]
    return load_source(spec.scenario).prepare(spec.scenario, machine_of(spec), np.random.SeedSequence(3))


def test_a_scenario_takes_the_costs_from_its_calibration_and_says_so(tmp_path):
    app, path = write_app(tmp_path), tmp_path / "mine.toml"
    shipped = load_calibration()
    values = dataclasses.asdict(COSTS)
    program = {key: dataclasses.replace(each, value=values[key]) for key, each in shipped.program.items()}
    path.write_text(write(dataclasses.replace(shipped, program=program)))
    plain = _prepared(app, path=str(path))
    costed = _prepared(app, path=str(path), program="twinbed")
    assert (costed.workload.graph.mean_s > plain.workload.graph.mean_s).all()
    assert (costed.workload.peak_cores > plain.workload.peak_cores).all()
    assert costed.workload.cores_of_host[0] < plain.workload.cores_of_host[0] == 2.0
    assert np.array_equal(costed.workload.arrivals.at_s, plain.workload.arrivals.at_s)
    assert len(costed.notes) == len(plain.notes) + 1


def test_what_runs_beside_the_containers_leaves_them_a_share(tmp_path):
    workload = _prepared(write_app(tmp_path)).workload
    assert beside(workload, COSTS, 100.0).cores_of_host == pytest.approx([2.0 - 0.1 - 0.1])
    found = beside(workload, COSTS, 100.0)
    assert (found.client.way_s, found.stolen, found.imbalance, found.moves) == (2e-4, 0.1, 0.5, 0.25)
    assert beside(workload, COSTS, 1e6).cores_of_host == pytest.approx([0.2])
