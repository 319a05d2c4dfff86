"""What the testbed's service program costs beyond the declared demand, added to what the twin replays.

For: `services.program: twinbed`. Not for: measuring it (lab.calibrating), nor for the program itself. An
overhead is the same for every visit, so it raises a demand's mean and leaves its standard deviation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lab.calibration import Program
from lab.services.graph import CompiledApp
from twin.containers.model import Floats
from twin.containers.requests.model import Draw, RequestWorkload

_LEAST_SHARE = 0.1
"""Of a host's cores that is left to the containers, however much runs beside them."""


def with_program(compiled: CompiledApp, costs: Program) -> CompiledApp:
    """The application as the service program runs it: CPU per visit and call, memory, network."""
    graph = compiled.graph
    bounds = graph.first_call[graph.first_stage]
    before = np.concatenate([[0.0], np.cumsum(graph.probability)])
    calls = before[bounds[1:]] - before[bounds[:-1]]
    declared_s = graph.mean_s * costs.dilation
    mean_s = declared_s + costs.visit_s + costs.call_s * calls
    varies = graph.draw != Draw.FIXED
    cv = np.where(graph.draw == Draw.EXPONENTIAL, 1.0, graph.cv) * declared_s / mean_s
    return replace(
        compiled,
        graph=replace(
            graph,
            mean_s=mean_s,
            draw=np.where(varies, np.uint8(Draw.LOGNORMAL), graph.draw),
            cv=np.where(varies, cv, graph.cv),
            base_bytes=np.maximum(graph.base_bytes, round(costs.base_bytes)),
            network_s=np.full(len(graph.network_s), costs.network_s),
        ),
    )


def beside(workload: RequestWorkload, costs: Program, rate_rps: float) -> RequestWorkload:
    """The workload on hosts that a control loop and a load generator share with the containers."""
    used_cores = costs.loop_cores + costs.client_request_s * rate_rps
    cores: Floats = workload.cores_of_host
    return replace(workload, cores_of_host=np.maximum(cores - used_cores, cores * _LEAST_SHARE))
