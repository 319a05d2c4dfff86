"""Makes the jobs and servers of a cluster scenario: drawn at random, from a log, or from measured speeds.

For: ClusterInput to control.scheduler.model.Cluster and control.cluster.Workload. Not for: running them.
The generator from measured speeds is that of Gavel (Narayanan et al., OSDI 2020, code). The duration on the
reference type is 60·10^U(1.5, 3) s for 80 % of the jobs and 60·10^U(3, 4) s for the others. All models are
equally likely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from control.cluster import Workload
from control.goodput import Goodput, Speed
from control.scheduler.books import most_gpus
from control.scheduler.model import NO_SHARING, NOT_ELASTIC, Cluster, Elastic, Real, Sharing, Whole
from lab.cluster.input import ClusterInput, LogInput, MeasuredInput, SyntheticInput
from traces.readers import pair_speeds, throughputs
from traces.readers.job_logs import FORMATS
from twinbed import ScenarioError

_MOST_NAMED = 5
"""Most jobs that a note names."""
_MOST_GROWN = 256
"""Most GPUs to which a job may grow."""
_SPREAD = 0.9
"""Speed of a gang on more servers than it needs, if it was not measured. An assumption."""


@dataclass(frozen=True, slots=True)
class Jobs:
    """The input of a run.

    workload, cluster: the jobs and the servers, as the twin takes them.
    queues: names of the queues.
    models: model of each job.
    notes: changes to the data.
    inputs: files read, as in a manifest.
    sha256: hash of their contents.
    waited_s: how long each job really waited, s, NaN where unknown, float64[n].
    """

    workload: Workload
    cluster: Cluster
    queues: tuple[str, ...]
    models: Sequence[str]
    notes: tuple[str, ...]
    inputs: tuple[dict[str, str], ...]
    sha256: str
    waited_s: Real


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Jobs before they meet the servers.

    throughput: steps per second by type, together and spread, float64[n, r, 2].
    queue: name of each job's queue; empty: to be drawn. sharing: as measured, None if it was not; the others
    as in Jobs and Workload.
    """

    submit_s: Real
    gpus: Whole
    steps: Real
    throughput: Real
    weight: Real
    queue: Sequence[str]
    models: Sequence[str]
    notes: tuple[str, ...]
    waited_s: Real
    sharing: Sharing | None = None
    per_s: Real | float = 1.0


def build(asked: ClusterInput, seed: np.random.SeedSequence) -> Jobs:
    """Return the jobs and their cluster. Raises TwinbedError for a file that is wrong or a job without a
    type."""
    random = np.random.default_rng(seed)
    path = None
    if asked.synthetic is not None:
        drawn = _synthetic(asked, asked.synthetic, random)
    elif asked.log is not None:
        path = Path(asked.log.path)
        drawn = _logged(asked, asked.log, random)
    else:
        assert asked.measured is not None, "checked when the scenario is read"
        path = Path(asked.measured.path)
        drawn = _measured(asked, asked.measured, random)
    stuck = ~(drawn.throughput[:, :, 0] > 0).any(axis=1)
    if stuck.any():
        row = int(np.argmax(stuck))
        job = row + (asked.log.skip if asked.log is not None else 0)
        raise ScenarioError(
            f"cluster.models.{drawn.models[row]}: job {job} (from 0, by submission) can run on none of the "
            "types that it may have; give a speed above 0"
        )
    n = drawn.gpus.size
    queue = drawn.queue or _dealt(list(asked.queues) or [""], n, random)
    names = (*asked.queues, *sorted(set(queue) - set(asked.queues)))
    place = {name: index for index, name in enumerate(names)}
    together = asked.together
    if isinstance(together, list) and (strange := set(together) - {*asked.models, *drawn.models}):
        raise ScenarioError(f"cluster.together: no job has model {min(strange)!r}")
    elastic = _elastic(asked, drawn)
    workload = Workload(
        drawn.submit_s,
        drawn.gpus,
        drawn.steps,
        _spread(drawn, elastic),
        np.array([place[name] for name in queue], np.int64),
        drawn.weight,
        _deadlines(asked, drawn, random),
        np.array([together if isinstance(together, bool) else name in together for name in drawn.models]),
        _sharing(asked, n) if drawn.sharing is None else drawn.sharing,
        elastic,
        drawn.per_s,
    )
    files = {} if path is None else {"jobs": path}
    if asked.measured is not None and asked.measured.pairs is not None:
        files["pairs"] = Path(asked.measured.pairs)
    if asked.faults is not None and asked.faults.trace is not None:
        files["faults"] = Path(asked.faults.trace)
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files.values()]
    inputs = tuple(
        {"role": role, "source": file.name, "sha256": digest}
        for (role, file), digest in zip(files.items(), hashes, strict=True)
    )
    digest, notes = "+".join(hashes), (*drawn.notes, *_unused(asked, drawn, queue))
    made = Jobs(workload, cluster(asked, names), names, drawn.models, notes, inputs, digest, drawn.waited_s)
    made = made if asked.log is None else _without_large(made, asked.log.skip)
    if asked.watched.first >= len(made.workload):
        raise ScenarioError(
            f"cluster.watched.first: there are only {len(made.workload)} jobs, and they count from 0"
        )
    return made


def _without_large(jobs: Jobs, skipped: int) -> Jobs:
    """Return a log's jobs without those that ask for more GPUs than they can ever have, which a note names.

    skipped: number of jobs at the log's start that are left out. Raises ScenarioError if no job is left.
    """
    load, most = jobs.workload, most_gpus(jobs.cluster, jobs.workload)
    large, rows = np.flatnonzero(load.gpus > most), np.flatnonzero(load.gpus <= most)
    if not large.size:
        return jobs
    named = [
        f"job {skipped + job} ({load.gpus[job]}, can have {most[job]})"
        for job in large[:_MOST_NAMED].tolist()
    ]
    more = ["…"] if large.size > _MOST_NAMED else []
    note = (
        f"Jobs of the log left out because they ask for more GPUs than they can ever have: {large.size:,}; "
        f"they are {', '.join(named + more)}, from 0 in the order of submission"
    )
    if not rows.size:
        raise ScenarioError(f"cluster.servers: too small for every job of the log. {note}")
    models = [jobs.models[row] for row in rows.tolist()]
    load, first_s, notes = load.of(rows), load.submit_s[rows[0]], (*jobs.notes, note)
    load = replace(load, submit_s=load.submit_s - first_s, deadline_s=load.deadline_s - first_s)
    return replace(jobs, workload=load, models=models, waited_s=jobs.waited_s[rows], notes=notes)


def _dealt(names: Sequence[str], n: int, random: np.random.Generator) -> list[str]:
    """Return a queue for each job, drawn with equal probability."""
    return [names[place] for place in random.integers(0, len(names), n)] if len(names) > 1 else [*names] * n


def _unused(asked: ClusterInput, drawn: _Drawn, queue: Sequence[str]) -> list[str]:
    """Return notes on servers on which no job can run, and on queues and goodputs without a job."""
    used = set(np.flatnonzero((drawn.throughput[:, :, 0] > 0).any(axis=0)).tolist())
    servers = enumerate(asked.servers.items())
    idle = [name for place, (name, part) in servers if part.count and place not in used]
    empty = [name for name in asked.queues if name not in queue]
    absent = [name for name in asked.goodput if name not in drawn.models]
    unused = {"No job can run on": idle, "No job is in queue": empty, "No job has the goodput of": absent}
    return [f"{text} {', '.join(named)}" for text, named in unused.items() if named]


def cluster(asked: ClusterInput, queues: Sequence[str]) -> Cluster:
    """Return the servers. Queues without quotas share equally what is not guaranteed to others."""
    parts = list(asked.servers.values())
    count = [part.count for part in parts]
    quotas = [asked.queues.get(name) for name in queues]
    rest = max(1 - sum(quota.share for quota in quotas if quota is not None), 0.0)
    equal = rest / max(quotas.count(None), 1)
    return Cluster(
        tuple(asked.servers),
        np.repeat(np.arange(len(parts)), count),
        np.repeat([part.gpus for part in parts], count),
        np.concatenate([np.arange(part.count) % part.racks for part in parts]).astype(np.int64),
        np.array([part.price_usd_h for part in parts]),
        np.array([equal if quota is None else quota.share for quota in quotas]),
        np.array([1.0 if quota is None else quota.most for quota in quotas]),
    )


def _sharing(asked: ClusterInput, n: int) -> Sharing:
    """Return the scenario's assumption of how fast two jobs are on the same GPUs."""
    if asked.pair_speed is None:
        return NO_SHARING
    return Sharing(np.zeros(n, np.int64), np.full((1, 1, len(asked.servers)), asked.pair_speed))


def _elastic(asked: ClusterInput, drawn: _Drawn) -> Elastic:
    """Return the speeds of jobs of models with a goodput. A gang larger than its model's batch, or than
    _MOST_GROWN, cannot change."""
    if not asked.goodput:
        return NOT_ELASTIC
    parts = asked.servers.values()
    size = max(part.gpus for part in parts)
    gpus = np.arange(1, min(sum(part.count * part.gpus for part in parts), _MOST_GROWN) + 1)
    speed = np.zeros((len(asked.goodput), 2, gpus.size + 1))
    for row, given in enumerate(asked.goodput.values()):
        coefficients = (given.alpha_n, given.beta_n, given.alpha_r, given.beta_r)
        steps = Speed(given.alpha_c, given.beta_c, *coefficients, given.gamma)
        model = Goodput(steps, given.noise, given.batch, given.most_batch, given.most_local)
        speed[row, 0, 1:] = model.best(1 + (gpus > size), gpus)[0]
        speed[row, 1, 1:] = model.best(1 + (gpus > 1), gpus)[0]
    names = list(asked.goodput)
    kind = np.array([names.index(model) if model in names else -1 for model in drawn.models], np.int64)
    known = speed[kind, 0, np.minimum(drawn.gpus, gpus.size)] > 0
    kind[~known | (drawn.gpus > gpus.size)] = -1
    return Elastic(kind, speed)


def _spread(drawn: _Drawn, elastic: Elastic) -> Real:
    """Return the throughput; that of a gang on several servers follows from its goodput if it has one."""
    rates = drawn.throughput.copy()
    n = drawn.gpus.size
    known = elastic.of(np.arange(n)) >= 0
    slower = elastic.speed_up(np.arange(n), drawn.gpus, drawn.gpus, np.ones(n, np.int64))[:, None]
    rates[known, :, 1] = (rates[:, :, 0] * slower)[known]
    return rates


def _deadlines(asked: ClusterInput, drawn: _Drawn, random: np.random.Generator) -> Real:
    """Return when each job is due, s, inf without deadlines, float64[n]."""
    if not asked.deadlines:
        return np.full(drawn.gpus.size, np.inf)
    factor = random.choice(np.array(asked.deadlines), drawn.gpus.size)
    return np.asarray(drawn.submit_s + factor * drawn.steps / drawn.throughput.max(axis=(1, 2)))


def _synthetic(asked: ClusterInput, given: SyntheticInput, random: np.random.Generator) -> _Drawn:
    n = given.count
    submit_s = np.cumsum(random.exponential(3600 / given.per_hour, n))
    steps = np.exp(random.uniform(np.log(given.shortest_s), np.log(given.longest_s), n))
    gpus = random.choice(np.array(given.gpus, np.int64), n)
    models = _models(asked, [""] * n, random)
    speeds = _speeds(asked, models, [()] * n)
    unknown = np.full(n, np.nan)
    return _Drawn(submit_s - submit_s[0], gpus, steps, speeds, np.ones(n), [], models, (), unknown)


def _logged(asked: ClusterInput, given: LogInput, random: np.random.Generator) -> _Drawn:
    log = FORMATS[given.format](Path(given.path))
    part = slice(given.skip, None if given.count is None else given.skip + given.count)
    submit_s = log.submit_s[part]
    if not submit_s.size:
        raise ScenarioError(f"cluster.log.skip: {given.path} has only {log.submit_s.size} jobs")
    models = _models(asked, log.model[part], random)
    types = [()] * submit_s.size if given.any_type else log.types[part]
    for job, names in enumerate(types, given.skip):
        if names and not set(names) & set(asked.servers):
            raise ScenarioError(
                f"cluster.servers: job {job} of the log (from 0, by submission) may only have type "
                f"{' or '.join(names)}; add such servers, or set cluster.log.any_type"
            )
    notes = [f"Jobs of {Path(given.path).name}: {submit_s.size:,}"]
    if log.left_out:
        notes.append(
            f"Rows of the log without GPUs, without a run time or not ended, left out: {log.left_out:,}"
        )
    notes += log.notes
    if given.format == "alibaba-gpu-2023":
        notes.append("A pod with a part of a GPU counts as one with a whole GPU")
    n = submit_s.size
    return _Drawn(
        (submit_s - submit_s[0]) * given.stretch,
        log.gpus[part],
        log.duration_s[part],
        _speeds(asked, models, types),
        np.ones(n),
        log.queue[part],
        models,
        tuple(notes),
        log.waited_s[part],
    )


def _measured(asked: ClusterInput, given: MeasuredInput, random: np.random.Generator) -> _Drawn:
    known = throughputs.read(Path(given.path), given.source)
    for name in (*asked.servers, given.reference):
        if name not in known.types:
            raise ScenarioError(f"cluster.measured: {given.path} has no type {name!r}, it has {known.types}")
    n = given.count
    gaps = np.zeros(n) if given.per_hour is None else random.exponential(3600 / given.per_hour, n)
    submit_s = np.cumsum(gaps)
    long = random.random(n) >= 0.8
    duration_s = 60 * 10 ** np.where(long, random.uniform(3, 4, n), random.uniform(1.5, 3, n))
    gpus = random.choice([1, 2, 4, 8], n, p=[0.7, 0.1, 0.15, 0.05]) if given.several_gpus else np.ones(n, int)
    weight = np.where(random.random(n) < given.urgent_share, 5.0, 1.0)
    draws = random.random(n)
    columns = [known.types.index(name) for name in asked.servers]
    base = known.types.index(given.reference)
    speeds, per_s, models = np.zeros((n, len(columns), 2)), np.zeros(n), [""] * n
    sizes, kind = np.unique(gpus).tolist(), np.zeros(n, np.int64)
    for size in sizes:
        rows = np.flatnonzero(gpus == size)
        table = known.steps_per_s.get(size, np.zeros((0, len(known.types), 2)))
        able = np.flatnonzero((table[:, [*columns, base], 0] > 0).all(axis=1))
        if not able.size:
            raise ScenarioError(
                f"cluster.measured: {given.path} has no model that was measured on {size} GPUs of "
                f"{', '.join(dict.fromkeys((*asked.servers, given.reference)))}"
            )
        chosen = able[(draws[rows] * able.size).astype(int)]
        speeds[rows] = table[chosen][:, columns]
        per_s[rows] = table[chosen, base, 0]
        kind[rows] = chosen + sizes.index(size) * len(known.models)
        for row, model in zip(rows.tolist(), chosen.tolist(), strict=True):
            models[row] = known.models[model]
    if asked.spread_speed is not None:
        speeds[:, :, 1] = speeds[:, :, 0] * asked.spread_speed
    note = f"Speeds are read from {Path(given.path).name}, which does not come with twinbed"
    sharing = None
    if given.pairs is not None:
        measured = pair_speeds.read(Path(given.pairs), known)
        classes = len(known.models)
        kept = np.zeros((len(sizes) * classes, len(sizes) * classes, len(columns)))
        for place, size in enumerate(sizes):
            part = slice(place * classes, (place + 1) * classes)
            kept[part, part] = measured[size][:, :, columns]
        sharing = Sharing(kind, kept)
    gangs, steps, unknown = gpus.astype(np.int64), duration_s * per_s, np.full(n, np.nan)
    come_s = submit_s - submit_s[0]
    return _Drawn(come_s, gangs, steps, speeds, weight, [], models, (note,), unknown, sharing, per_s)


def _models(asked: ClusterInput, named: Sequence[str], random: np.random.Generator) -> list[str]:
    """Return each job's model. A job without a known model draws one."""
    known = list(asked.models)
    if not known:
        return list(named)
    draws = random.integers(0, len(known), len(named))
    return [name if name in asked.models else known[draw] for name, draw in zip(named, draws, strict=True)]


def _speeds(asked: ClusterInput, models: Sequence[str], types: Sequence[tuple[str, ...]]) -> Real:
    """Return steps per second, float64[n, r, 2]. A step is a second of work at speed 1."""
    plain = {name: part.speed for name, part in asked.servers.items()}
    rows = np.array(
        [
            [
                asked.models.get(model, plain).get(name, plain[name]) * (not allowed or name in allowed)
                for name in asked.servers
            ]
            for model, allowed in zip(models, types, strict=True)
        ]
    )
    spread = _SPREAD if asked.spread_speed is None else asked.spread_speed
    return np.stack((rows, rows * spread), axis=2)
