"""Adds the costs of the testbed's service program to the twin's workload.

For: `services.program: twinbed`, and the twin's side of a calibration. Not for: measuring the costs
(lab.containers.calibrate) nor for the program itself. The costs of visits, stages and calls are the same for
every visit, so they raise a demand's mean and leave its standard deviation. The twin's engine adds the cost
of waking up.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from control.services import Draw
from lab.containers.calibrate.values import Program
from lab.containers.input.services.graph import CompiledApp
from testbed.containers.services.footprint import TRIM_S
from twin.containers.model import Floats
from twin.containers.requests.model import Index, RequestWorkload, ServiceGraph

_LEAST_SHARE = 0.1
"""Share of a host's cores that is left to the containers, however much runs beside them."""


def with_program(compiled: CompiledApp, costs: Program) -> CompiledApp:
    """Return the application with the program's CPU, memory and network added to the declared demand."""
    graph = compiled.graph
    stages, calls = _stages_and_calls(graph)
    declared_s = graph.mean_s * costs.dilation
    mean_s = declared_s + costs.visit_s + costs.stage_s * stages + costs.call_s * calls
    varies = graph.draw != Draw.FIXED
    cv = np.where(graph.draw == Draw.EXPONENTIAL, 1.0, graph.cv) * declared_s / mean_s
    return replace(
        compiled,
        graph=replace(
            graph,
            mean_s=mean_s,
            draw=np.where(varies, np.uint8(Draw.LOGNORMAL), graph.draw),
            cv=np.where(varies, cv, graph.cv),
            base_bytes=np.maximum(graph.base_bytes + round(costs.kernel_bytes), round(costs.base_bytes)),
            network_s=np.full(len(graph.network_s), costs.network_s),
            wake_s=costs.wake_s,
            wake_tau_s=costs.wake_tau_s,
            keep_s=TRIM_S,
        ),
    )


def _stages_and_calls(graph: ServiceGraph) -> tuple[Floats, Floats]:
    """Return (float64[H], float64[H]): mean number of stages in which a visit makes calls, and of its
    calls."""
    calls = _sums(graph.probability, graph.first_call)
    with np.errstate(divide="ignore"):
        none = np.exp(_sums(np.log1p(-graph.probability), graph.first_call))
    return _sums(1.0 - none, graph.first_stage), _sums(calls, graph.first_stage)


def _sums(values: Floats, first: Index) -> Floats:
    """Return float64[owners]: the sum of the values [first[i], first[i + 1]) of each owner i."""
    owners = np.repeat(np.arange(len(first) - 1), np.diff(first))
    return np.asarray(np.bincount(owners, values, len(first) - 1), np.float64)


def beside(workload: RequestWorkload, costs: Program, rate_rps: float) -> RequestWorkload:
    """Return the workload on hosts on which a control loop and a load generator run, too."""
    used_cores = costs.loop_cores + costs.client_request_s * rate_rps
    cores: Floats = workload.cores_of_host
    return replace(
        workload,
        cores_of_host=np.maximum(cores - used_cores, cores * _LEAST_SHARE),
        client=replace(workload.client, way_s=costs.client_s),
        stolen=costs.stolen,
        imbalance=costs.imbalance,
        moves=costs.moves,
    )
