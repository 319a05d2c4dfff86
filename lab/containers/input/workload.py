"""From the trace that a scenario names to the twin's `Workload`: load, refine, profile, set the ceilings.

For: everything that all policies of a scenario share. Not for: parsing traces (traces), requests
(lab.containers.input.services.prepare), nor for what a policy does with the profile. Every assumption made
here is a note on the run.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.model import PAGE_BYTES
from lab.containers.input.ceilings import applications, given_threads, profile_peaks
from lab.containers.input.replay import Replay
from lab.containers.input.sections import ContainerScenario, SyntheticContainer
from traces.load import load
from traces.refine import DEFAULT, Burstiness, refine
from traces.schema import MAX_CELLS, UsageTrace
from twin.containers.model import Floats, Machine, Workload
from twinbed import ScenarioError

LEAST_HOST_CORES = 4
"""Smallest host assumed when a trace does not say: a small cloud machine, n1-standard-4 for one."""
_HOST_KEY = "cpus"
"""The recorder's name for the machine's logical CPUs in a trace's metadata."""
_SELECTION = ("format", "containers", "max_containers", "start_s", "end_s")


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A loaded trace; implements lab.source.Source."""

    trace: UsageTrace
    sha256: str
    inputs: tuple[dict[str, Any], ...]

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:
        """The trace counts by its content; the burstiness it is refined with is written out."""
        plain = {key: value for key, value in resolved.items() if key != "trace"}
        return plain | {"refine": asdict(burstiness(scenario))}

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:  # noqa: ARG002 - the port's signature
        """`prepare` of this trace; no machine is needed, because peaks are those of the trace."""
        return prepare(scenario, self.trace, seed)


def load_source(scenario: ContainerScenario) -> TraceSource:
    """The scenario's trace with its content's hash; errors as of `input_trace`."""
    trace = input_trace(scenario)
    sha256 = content_sha256(trace)
    given = {"source": "scenario"} if scenario.trace is None else scenario.trace.model_dump(mode="json")
    return TraceSource(trace, sha256, ({"role": "trace", "sha256": sha256, **given},))


def input_trace(scenario: ContainerScenario) -> UsageTrace:
    """The scenario's trace, selected and checked, not yet refined; or its synthetic workload as a trace.

    Raises TraceError for what is wrong with the trace, ScenarioError for what is wrong with the request.
    """
    if scenario.workload is not None:
        return _synthetic(scenario.workload.containers, scenario.period_s)
    given = scenario.trace
    if given is None:
        raise ScenarioError(f"{scenario.name}: neither a trace nor a workload")
    taken = sorted(set(given.options) & set(_SELECTION))
    if taken:
        raise ScenarioError(f"{scenario.name}: trace.options.{taken[0]}: write it as trace.{taken[0]}")
    selection = {key: getattr(given, key) for key in _SELECTION}
    return load(given.source, **selection, **given.options)


def content_sha256(trace: UsageTrace) -> str:
    """SHA-256 of what the trace says, independent of the file it came from."""
    digest = hashlib.sha256(repr((trace.containers, trace.apps, trace.start_s, trace.interval_s)).encode())
    for values in (trace.cpu_cores, trace.memory_bytes, trace.present, trace.throttled_s):
        digest.update(b"-" if values is None else np.ascontiguousarray(values).data)
    return digest.hexdigest()


def prepare(scenario: ContainerScenario, trace: UsageTrace, seed: np.random.SeedSequence) -> Replay:
    """Brings the trace to the scenario's period and derives threads, hosts, peaks and global limits.

    Raises ScenarioError for a thread count given for a container that is not there.
    """
    notes: list[str] = []
    host_cores = _host_cores(scenario, trace, notes)
    _note_censoring(trace, notes)
    # Network counters are of no use to the twin, and refining them costs as much as the CPU.
    plain = replace(trace, rx_bytes=None, tx_bytes=None)
    fine = refine(plain, scenario.period_s, seed, burstiness(scenario), max_cores=host_cores)
    demand, memory = fine.cpu_cores, np.rint(fine.memory_bytes).astype(np.int64)
    memory_known = np.asarray(memory.any(axis=0), np.bool_)
    _note_memory(fine, memory_known, notes)
    peak_cores = profile_peaks(demand, scenario.period_s, scenario.profile.interval_s)
    peak_bytes = np.maximum(memory.max(axis=0), PAGE_BYTES)
    names = tuple(dict.fromkeys(fine.apps))
    app = np.array([names.index(each) for each in fine.apps], np.int64)
    workload = Workload(
        names=fine.containers,
        applications=applications(scenario, names, app, peak_cores, peak_bytes),
        app=app,
        period_s=scenario.period_s,
        demand_cores=demand,
        memory_bytes=memory,
        present=fine.present,
        threads=_threads(scenario, fine.containers, demand, host_cores),
        host_cores=np.full(len(app), host_cores),
        peak_cores=peak_cores,
        peak_bytes=peak_bytes,
    )
    return Replay(workload, memory_known, (*fine.notes, *notes), {"start_s": trace.start_s})


def burstiness(scenario: ContainerScenario) -> Burstiness:
    """What a coarse trace is refined with: the default of traces, or what the scenario sets."""
    return replace(DEFAULT, **scenario.refine.model_dump(exclude_none=True))


def _host_cores(scenario: ContainerScenario, trace: UsageTrace, notes: list[str]) -> float:
    if scenario.host_cores is not None:
        return scenario.host_cores
    said = trace.metadata.get(_HOST_KEY, "")
    if said.isdecimal() and int(said) > 0:
        return float(said)
    cores = max(LEAST_HOST_CORES, ceil(trace.cpu_cores.max()))
    if scenario.trace is not None:
        notes.append(
            f"The trace does not say how large the hosts are: {cores} cores each are assumed "
            f"(the largest peak rounded up, at least {LEAST_HOST_CORES}); set host_cores to change it."
        )
    return float(cores)


def _threads(
    scenario: ContainerScenario, names: tuple[str, ...], demand: Floats, host_cores: float
) -> Floats:
    """As given, else enough to have used the peak that was seen."""
    threads: Floats = np.clip(np.ceil(demand.max(axis=0)), 1.0, max(1.0, host_cores))
    own: dict[str, float] = {}
    if scenario.workload is not None:
        own = {each.name: each.threads for each in scenario.workload.containers if each.threads}
    return given_threads(scenario, names, threads, own)


def _note_censoring(trace: UsageTrace, notes: list[str]) -> None:
    if trace.throttled_s is None:
        return
    throttled = int(np.count_nonzero((trace.throttled_s > 0).any(axis=0)))
    if throttled:
        notes.append(
            f"{throttled} of {len(trace.containers)} containers were throttled when the trace was "
            "recorded: their recorded use is less than they wanted, so the demand replayed is censored."
        )


def _note_memory(trace: UsageTrace, known: NDArray[np.bool_], notes: list[str]) -> None:
    there = trace.present.any(axis=0)
    missing = [name for name, gone in zip(trace.containers, there & ~known, strict=True) if gone]
    if missing and not known.any():
        notes.append("The trace has no memory: memory metrics are not defined and no OOM can happen.")
    elif missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        notes.append(f"{len(missing)} containers have no memory in the trace and no memory metrics: {shown}.")


def _synthetic(containers: list[SyntheticContainer], period_s: float) -> UsageTrace:
    """The written-down demand at the period itself, so that nothing is left to refine."""
    names = tuple(each.name for each in containers)
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError(f"workload: container {name!r} appears twice")
    lengths = [[max(1, round(step.duration_s / period_s)) for step in each.steps] for each in containers]
    shape = (max(sum(each) for each in lengths), len(containers))
    if shape[0] * shape[1] > MAX_CELLS:
        raise ScenarioError(f"workload: {shape[0]} periods × {shape[1]} containers is over {MAX_CELLS:,}")
    cpu, memory, present = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    for index, each in enumerate(containers):
        count = sum(lengths[index])
        held = [each.memory_bytes if step.memory_bytes is None else step.memory_bytes for step in each.steps]
        cpu[:count, index] = np.repeat([step.cpu_cores for step in each.steps], lengths[index])
        memory[:count, index] = np.repeat(np.array(held, np.float64), lengths[index])
        present[:count, index] = True
    return UsageTrace(
        containers=names,
        apps=tuple(each.app for each in containers),
        start_s=0.0,
        interval_s=period_s,
        cpu_cores=cpu,
        memory_bytes=memory,
        present=present,
        notes=("The demand is synthetic: written in the scenario, not recorded.",),
    )
