"""Turns the trace that a scenario names into the twin's `Workload`: loads, refines, profiles, sets the
ceilings.

For: the inputs that all policies of a scenario share, and the replicas of containers under the HPA. Not for:
parsing traces (traces), requests (services/prepare.py), nor the use of the profile by policies. Every
assumption becomes a note on the run.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.hpa import HpaSettings
from control.allocator.model import PAGE_BYTES
from lab.containers.input.blocks import Peaks, blocks_of
from lab.containers.input.ceilings import applications, given_threads, given_weights, profile_peaks
from lab.containers.input.replay import Replay
from lab.containers.input.sections import ContainerScenario, HpaInput, SyntheticContainer
from lab.containers.metrics import NO_MEMORY
from traces.load import SELECTION, load
from traces.refine import DEFAULT, Burstiness, multiple, refine
from traces.schema import MAX_CELLS, UsageTrace
from twin.containers.model import Floats, Machine, Replication, Workload
from twinbed import ScenarioError, TraceError

LEAST_HOST_CORES = 4
"""Cores of the smallest host that is assumed if a trace does not state them: a small cloud machine like
n1-standard-4."""
_HOST_KEY = "cpus"
"""The recorder's name for the machine's logical CPUs in a trace's metadata."""
_SELECTION = ("format", *SELECTION)


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A loaded trace; implements lab.containers.input.replay.Source."""

    trace: UsageTrace
    sha256: str
    inputs: tuple[dict[str, Any], ...]

    def settle(self, scenario: ContainerScenario, resolved: dict[str, Any]) -> dict[str, Any]:
        """Leave the trace out, whose content is hashed, and write out the burstiness that refines it."""
        plain = {key: value for key, value in resolved.items() if key != "trace"}
        return plain | {"refine": asdict(burstiness(scenario)) | {"repeats": scenario.refine.repeats}}

    def prepare(self, scenario: ContainerScenario, machine: Machine, seed: np.random.SeedSequence) -> Replay:  # noqa: ARG002 - the port's signature
        """Return the trace as a workload. The machine is not needed, because the peaks are those of the
        trace."""
        return prepare(scenario, self.trace, seed)


def load_source(scenario: ContainerScenario) -> TraceSource:
    """Return the scenario's trace with its content's hash. Raises as `input_trace`."""
    trace = input_trace(scenario)
    sha256 = content_sha256(trace)
    origin = {"source": "scenario"} if scenario.trace is None else scenario.trace.model_dump(mode="json")
    if Path(str(origin["source"])).name == "-":
        # The copy of standard input does not outlive the question.
        origin["source"] = "-"
    return TraceSource(trace, sha256, ({"role": "trace", "sha256": sha256, **origin},))


def input_trace(scenario: ContainerScenario) -> UsageTrace:
    """Return the scenario's trace, selected and checked but not refined, or its synthetic workload as a
    trace.

    Raises TraceError for an error in the trace, ScenarioError for an error in the scenario.
    """
    if scenario.workload is not None:
        return _synthetic(scenario.workload.containers, scenario.period_s)
    asked = scenario.trace
    if asked is None:
        raise ScenarioError(f"{scenario.name}: neither a trace nor a workload")
    own = sorted(set(asked.options) & set(_SELECTION))
    if own:
        raise ScenarioError(f"{scenario.name}: trace.options.{own[0]}: write it as trace.{own[0]}")
    selection = {key: getattr(asked, key) for key in _SELECTION}
    return load(asked.source, **selection, **asked.options)


def content_sha256(trace: UsageTrace) -> str:
    """Return the SHA-256 of the trace's content, which does not depend on the file it came from."""
    digest = hashlib.sha256(repr((trace.containers, trace.apps, trace.start_s, trace.interval_s)).encode())
    for values in (trace.cpu_cores, trace.memory_bytes, trace.present, trace.throttled_s):
        digest.update(b"-" if values is None else np.ascontiguousarray(values).data)
    return digest.hexdigest()


def prepare(scenario: ContainerScenario, trace: UsageTrace, seed: np.random.SeedSequence) -> Replay:
    """Bring the trace to the scenario's period, and derive threads, hosts, peaks and global limits.

    Raises ScenarioError for a thread count of an unknown container.
    """
    _check_period(scenario, trace)
    notes: list[str] = []
    host_cores = _host_cores(scenario, trace, notes)
    hosts = _hosts(scenario, trace, notes)
    _note_censoring(trace, notes)
    # The twin does not use network counters, and refining them costs as much as refining CPU.
    plain = replace(trace, rx_bytes=None, tx_bytes=None)
    bursts = burstiness(scenario)
    blocks = blocks_of(scenario, plain, seed, bursts, host_cores)
    if blocks is None:
        fine = refine(plain, scenario.period_s, seed, bursts, max_cores=host_cores)
        demand, memory = fine.cpu_cores, np.rint(fine.memory_bytes).astype(np.int64)
        memory_known = np.asarray(memory.any(axis=0), np.bool_)
        peak_cores = profile_peaks(demand, scenario.period_s, scenario.profile.interval_s)
        most_bytes, most_cores = memory.max(axis=0), demand.max(axis=0)
    else:
        fine = replace(plain, interval_s=scenario.period_s, notes=blocks.notes)
        demand, memory = np.empty((0, plain.shape[1])), np.empty((0, plain.shape[1]), np.int64)
        peaks = Peaks(blocks, scenario.profile.interval_s, scenario.period_s)
        memory_known, peak_cores = peaks.memory_known, peaks.cores
        most_bytes, most_cores = peaks.memory_bytes, peaks.threads
    _note_memory(fine, memory_known, notes)
    peak_bytes = np.maximum(most_bytes, PAGE_BYTES)
    place = {name: index for index, name in enumerate(dict.fromkeys(fine.apps))}
    names, app = tuple(place), np.array([place[name] for name in fine.apps], np.int64)
    workload = Workload(
        names=fine.containers,
        applications=applications(scenario, names, app, peak_cores, peak_bytes),
        app=app,
        period_s=scenario.period_s,
        demand_cores=demand,
        memory_bytes=memory,
        present=fine.present if blocks is None else fine.present[:0],
        threads=_threads(scenario, fine.containers, most_cores, host_cores),
        host=np.arange(len(app)) % hosts,
        host_cores=np.full(len(app), host_cores),
        weight=given_weights(scenario, fine.containers),
        peak_cores=peak_cores,
        peak_bytes=peak_bytes,
        host_memory_bytes=scenario.most_bytes,
        report_interval_s=scenario.report_interval_s or 0.0,
        blocks=blocks,
    )
    if scenario.workload is not None and scenario.draw:
        workload = replace(workload, demand_cores=_begun_within(demand, seed, scenario.draw))
    if scenario.hpa is not None:
        workload = replicated(workload, scenario.hpa, own_hosts=hosts == len(app))
        sizes = workload.peak_cores, workload.peak_bytes
        workload = replace(workload, applications=applications(scenario, names, workload.app, *sizes))
        memory_known = memory_known[workload.replication.of] if workload.replication else memory_known
        notes.append("Replicas share their workload's demand evenly; each holds the memory of the trace.")
    coarse = fine.interval_s < trace.interval_s
    refined = coarse and bursts.cv > 0
    about = {"start_s": trace.start_s} | ({"hosts": hosts} if hosts < len(app) else {})
    return Replay(
        workload,
        memory_known,
        (*fine.notes, *notes),
        about,
        refined=refined,
        interval_s=trace.interval_s if coarse else 0.0,
    )


def _check_period(scenario: ContainerScenario, trace: UsageTrace) -> None:
    """Raise ScenarioError that names a period, unless interval and period are multiples of each other."""
    interval_s, period_s = trace.interval_s, scenario.period_s
    try:
        multiple(max(interval_s, period_s), min(interval_s, period_s))
    except TraceError as error:
        least = ceil(interval_s / period_s)
        fitting = min((f"{interval_s / parts:.9g}" for parts in range(least, 2 * least + 1)), key=len)
        raise ScenarioError(f"{scenario.name}: {error}; --set period_s={fitting} fits") from None


def burstiness(scenario: ContainerScenario) -> Burstiness:
    """Return the burstiness that refines a coarse trace: the default of traces, or the scenario's."""
    return replace(DEFAULT, **scenario.refine.model_dump(exclude_none=True, exclude={"repeats"}))


def _host_cores(scenario: ContainerScenario, trace: UsageTrace, notes: list[str]) -> float:
    if scenario.host_cores is not None:
        return scenario.host_cores
    said = trace.metadata.get(_HOST_KEY, "")
    if said.isdecimal() and int(said) > 0:
        return float(said)
    cores = max(LEAST_HOST_CORES, ceil(trace.cpu_cores.max()))
    if scenario.trace is not None:
        notes.append(
            f"The trace does not state the hosts' size: {cores} cores each are assumed "
            f"(the largest peak rounded up, at least {LEAST_HOST_CORES}); set host_cores to change it."
        )
    return float(cores)


def _hosts(scenario: ContainerScenario, trace: UsageTrace, notes: list[str]) -> int:
    """Return the number of hosts: as given, else one where it is known, else one per container."""
    if scenario.hosts is not None:
        return scenario.hosts
    written = scenario.workload is not None and scenario.host_cores is not None
    if written or scenario.job is not None or _HOST_KEY in trace.metadata:
        return 1
    count = len(trace.containers)
    if count > 1:
        notes.append("Each container has a host of its own; set hosts to let them share some.")
    return count


def _threads(
    scenario: ContainerScenario, names: tuple[str, ...], most_cores: Floats, host_cores: float
) -> Floats:
    """Return the thread counts: as given, else enough for the peak in the trace."""
    threads: Floats = np.clip(np.ceil(most_cores), 1.0, max(1.0, host_cores))
    own: dict[str, float] = {}
    if scenario.workload is not None:
        own = {
            container.name: container.threads
            for container in scenario.workload.containers
            if container.threads
        }
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
        notes.append(NO_MEMORY)
    elif missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        notes.append(f"These have no memory in the trace, and so no memory metrics: {shown}.")


def _synthetic(containers: list[SyntheticContainer], period_s: float) -> UsageTrace:
    """Return the synthetic demand as a trace at the period itself, so that there is nothing to refine."""
    names = tuple(container.name for container in containers)
    name, often = Counter(names).most_common(1)[0]
    if often > 1:
        raise ScenarioError(f"workload: container {name!r} appears twice")
    lengths = [
        [max(1, round(step.duration_s / period_s)) for step in container.steps] for container in containers
    ]
    shape = (max(map(sum, lengths)), len(containers))
    if shape[0] * shape[1] > MAX_CELLS:
        raise ScenarioError(f"workload: {shape[0]} periods × {shape[1]} containers is over {MAX_CELLS:,}")
    cpu, memory, present = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.bool_)
    for index, container in enumerate(containers):
        count, steps = sum(lengths[index]), container.steps
        held = [container.memory_bytes if step.memory_bytes is None else step.memory_bytes for step in steps]
        cpu[:count, index] = np.repeat([step.cpu_cores for step in steps], lengths[index])
        memory[:count, index] = np.repeat(np.array(held, np.float64), lengths[index])
        present[:count, index] = True
    return UsageTrace(
        containers=names,
        apps=tuple(container.app for container in containers),
        start_s=0.0,
        interval_s=period_s,
        cpu_cores=cpu,
        memory_bytes=memory,
        present=present,
        notes=("The demand is synthetic: written in the scenario, not recorded.",),
    )


def _begun_within(demand: Floats, seed: np.random.SeedSequence, draw: int) -> Floats:
    """Return the demand of containers that begin within the first period, each at another moment."""
    own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, draw))
    share = np.random.default_rng(own).random(demand.shape[1])
    before = np.vstack([np.zeros_like(demand[:1]), demand[:-1]])
    return (1 - share) * demand + share * before


def replicated(workload: Workload, hpa: HpaInput, own_hosts: bool) -> Workload:
    """Return the workload with max_replicas columns for each container, NAME-0, NAME-1, …

    Each replica is profiled as one of the first replicas that share the demand. own_hosts: whether each
    replica has a host of its own; otherwise they are placed on the hosts in turn.
    """
    settings = HpaSettings(**hpa.model_dump(exclude_none=True, exclude={"replicas"}))
    count, most = len(workload.names), settings.max_replicas
    of, number = np.repeat(np.arange(count), most), np.tile(np.arange(most), count)
    hosts = count * most if own_hosts else len(np.unique(workload.host))
    demand = workload.demand_cores
    return replace(
        workload,
        names=tuple(f"{workload.names[index]}-{replica}" for index, replica in zip(of, number, strict=True)),
        app=workload.app[of],
        demand_cores=demand[:, of] / hpa.replicas,
        memory_bytes=workload.memory_bytes[:, of],
        present=workload.present[:, of],
        threads=workload.threads[of],
        host=np.arange(count * most) % hosts,
        host_cores=workload.host_cores[of],
        weight=workload.weight[of],
        peak_cores=workload.peak_cores[of] / hpa.replicas,
        peak_bytes=workload.peak_bytes[of],
        replication=Replication(of, number, demand, hpa.replicas, settings),
    )
