"""Turns the section `serverless` of a scenario into the twin's workload of pods.

For: what all policies of such a scenario share. Not for: the text (serverless.py) nor for pods
(twin.containers.pods). There is no profiling run. The size that the pods' owner asked for takes the place
of a profile, both for limits and for the application's ceilings.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from control.services import Draw
from lab.containers.input.ceilings import applications
from lab.containers.input.replay import Replay
from lab.containers.input.sections import ContainerScenario
from lab.containers.input.services.arrivals import generate
from lab.containers.input.services.serverless import Length, Part, Pod, ServerlessInput
from twin.containers.model import Machine
from twin.containers.serverless_model import Batch, Invocations, PodSpec, ServerlessWorkload, Step
from twinbed import ScenarioError

DEFAULT_HOST_CORES = 16.0
"""Cores of a host if the scenario does not state them: two Xeon E5-2650v2, the hosts of Escra's serverless
evaluation."""
_MIB = 1 << 20
_PROSE = {"title", "assumptions"}


@dataclass(frozen=True, slots=True)
class ServerlessSource:
    """A function and the load on it; implements lab.containers.input.replay.Source."""

    asked: ServerlessInput
    sha256: str
    inputs: tuple[dict[str, Any], ...]

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - the port's signature
        """Leave out prose and the conditions of traces."""
        serverless = resolved["serverless"]
        function = {key: value for key, value in serverless["function"].items() if key not in _PROSE}
        kept = {key: value for key, value in resolved.items() if key not in ("refine", "profile", "threads")}
        return kept | {"serverless": serverless | {"function": function}}

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:  # noqa: ARG002 - the port's signature
        """Return the workload, of which only the arrivals are random before it runs."""
        asked, function = self.asked, self.asked.function
        workload = _workload(scenario, asked, seed)
        count = len(workload.names)
        cores = "1 core" if function.pod.cores == 1 else f"{function.pod.cores:g} cores"
        sized = (
            f"The size that a pod requests, {cores} and {function.pod.memory_mib} MiB, is taken as its peak."
        )
        return Replay(
            workload,
            np.ones(count, np.bool_),
            (sized, *((f"{function.name}: {function.assumptions}",) if function.assumptions else ())),
            {
                "start_s": 0.0,
                "application": function.name,
                "arrivals": _described(asked),
                "requests": load.tasks if isinstance(load := workload.load, Batch) else len(load.at_s),
                "hosts": asked.hosts,
                "max_pods": count,
            },
        )


def load_source(scenario: ContainerScenario) -> ServerlessSource:
    """Return the scenario's function and load."""
    asked = scenario.serverless
    if asked is None:
        raise ScenarioError(f"{scenario.name}: no serverless")
    for key in ("host_memory_bytes", "report_interval_s"):
        if getattr(scenario, key) is not None:
            raise ScenarioError(f"{scenario.name}: {key}: not for pods of a function; leave it out")
    text = asked.model_dump_json(exclude={"function": _PROSE})
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return ServerlessSource(
        asked, sha256, ({"role": "function", "sha256": sha256, "source": asked.function.name},)
    )


def _workload(
    scenario: ContainerScenario, asked: ServerlessInput, seed: np.random.SeedSequence
) -> ServerlessWorkload:
    function = asked.function
    pods = min(filter(None, (asked.max_pods, asked.batch.workers if asked.batch else None)))
    cores = DEFAULT_HOST_CORES if scenario.host_cores is None else scenario.host_cores
    return ServerlessWorkload(
        application=applications(
            scenario,
            (function.name,),
            np.zeros(pods, np.int64),
            np.full(pods, function.pod.cores),
            np.full(pods, function.pod.memory_mib * _MIB, np.int64),
        )[0],
        pod=_pod(function.pod),
        steps=tuple(_step(part) for part in function.parts),
        load=_load(asked, seed),
        max_pods=pods,
        hosts=asked.hosts,
        cores_per_host=cores,
        period_s=scenario.period_s,
        periods=max(1, round(asked.duration_s / scenario.period_s)),
        phases=asked.phases,
    )


def _load(asked: ServerlessInput, seed: np.random.SeedSequence) -> Invocations | Batch:
    if asked.batch is not None:
        return Batch(asked.batch.tasks, asked.batch.workers, asked.batch.retries)
    if asked.arrivals is not None:
        return Invocations(generate(asked.arrivals, asked.duration_s, [1.0], seed).at_s)
    if asked.interval_s is None:
        raise ScenarioError("serverless: no invocations; give one of interval_s, arrivals, batch")
    return Invocations(np.arange(0.0, asked.duration_s, asked.interval_s))


def _described(asked: ServerlessInput) -> str:
    """Return the load in words."""
    if asked.batch is not None:
        return f"one batch for {asked.batch.workers} workers"
    return f"every {asked.interval_s:g} s" if asked.arrivals is None else asked.arrivals.kind


def _pod(pod: Pod) -> PodSpec:
    return PodSpec(
        cores=pod.cores,
        memory_bytes=pod.memory_mib * _MIB,
        threads=pod.threads,
        start=_length(pod.start, cpu=False),
        initialise=_length(pod.initialise, cpu=True),
        keep_alive_s=pod.keep_alive_s,
        base_bytes=round(pod.base_mib * _MIB),
        working_bytes=round(pod.working_mib * _MIB),
        retained_bytes=round(pod.retained_mib * _MIB),
    )


def _step(part: Part) -> Step:
    mean_s = part.wait_s if part.cpu_s is None else part.cpu_s
    return Step(part.cpu_s is not None, Draw[part.distribution.upper()], mean_s or 0.0, part.cv)


def _length(length: Length, *, cpu: bool) -> Step:
    return Step(cpu, Draw[length.distribution.upper()], length.mean_s, length.cv)
