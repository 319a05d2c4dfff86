"""The Python API: `import twinbed as tb`, then `tb.whatif`, `tb.run`, `tb.sweep` and the others.

For: notebooks and scripts, and the verbs of the same names. Not for: what its results can do (lab.answers),
nor how anything is asked, run or kept (lab.ask, lab.runs, lab.sweep).
Units are in the names of columns. Every function raises a `twinbed.TwinbedError` of one line for bad input.
Heavy packages are imported when they are used. Charts need the extra `explorer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from lab.answers import Advised, Ranking, Runs, Sweep, Table
from lab.arguments import as_in_a_file, checked
from twinbed import ScenarioError

if TYPE_CHECKING:
    from lab.ask.scenario import Scenario
    from lab.containers.advise.histories import Told
    from lab.containers.input.recording import Request
    from lab.runs.store import Run, RunStore

POLICIES = ("escra", "autopilot", "vpa", "static")
"""Policies that `whatif` compares if none are given."""

Settings: TypeAlias = "Mapping[str, object] | Sequence[str]"
"""Changes of a scenario, as in `--set`: `{"machine.restart_s": 5}` or `["machine.restart_s=5"]`."""

Asked: TypeAlias = "str | Path | Mapping[str, Any] | Scenario"
"""A scenario: its file, a shipped one's name, or its keys as in a file."""

Where: TypeAlias = "str | Path | RunStore | None"
"""Where runs are kept: a folder, a URL, or an open store."""


@checked
def Store(location: Where = None) -> RunStore:  # noqa: N802 - users take it for a class
    """Return the store of runs at a folder or a URL (`s3://BUCKET/PREFIX`).

    location: the folder or URL, or an open store, which is returned; None for $TWINBED_STORE, else the folder
    of this user's data. Every function takes the same as its `store`. The store's
    `list()` returns a frame of all runs, and `open(ID)` a run with `metrics` and `frame(TABLE)`. Raises
    StoreError.
    """
    from lab.runs.stores import store_at

    return store_at(location)


@checked
def record(
    command: str | Sequence[str] | Request,
    out: str | Path | None = None,
    *,
    interval_s: float | None = None,
    duration_s: float | None = None,
    network: Literal["host", "own"] | None = None,
    logs: str | Path | None = None,
    user: str | None = None,
    env: Sequence[str] = (),
    stdout: int | None = None,
    progress: bool = True,
) -> Table:
    """Record a command's resource use as a trace: CPU, throttling, memory and network, in its own cgroup.

    command: a text that no shell reads, or a list of words, or a Request of several commands. out: file of
    the trace; None: NAME-<UTC time>.parquet. interval_s: time between samples, s; None: 0.1. duration_s: time
    after which it is stopped, s. user, env: the user who runs it, and its environment variables. stdout: file
    descriptor of its output. Needs root and cgroups. `answer` is the Recording, with `exit_codes`. Raises
    BackendError if the machine cannot record.
    """
    import os
    import shlex
    from dataclasses import replace
    from datetime import UTC, datetime

    from lab.cli.record import progress_line, said_of, write_or_keep
    from lab.containers.input.recording import Request, as_result, as_trace, from_arguments
    from lab.runs.files import check_place
    from testbed.containers.host.identity import identity
    from testbed.containers.record import recorder
    from testbed.containers.record.watchdog import watchdog

    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError as error:
        raise ScenarioError(f"command {command!r}: {error}") from None
    request = words if isinstance(words, Request) else from_arguments(list(words), [], None)
    path = Path(out or f"{request.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.parquet")
    if path.suffix == ".csv":
        raise ScenarioError(f"{path}: a recording is a .parquet file; twinbed traces convert makes CSV of it")
    job = identity(user, env, os.environ)
    with job.acting():
        check_place(path)
    with watchdog(), progress_line(wanted=progress and logs is not None) as on_tick:
        recording = recorder.record(
            request.specs,
            app=request.name,
            interval_s=request.interval_s if interval_s is None else interval_s,
            duration_s=request.duration_s if duration_s is None else duration_s,
            network_mode=network or request.network,
            logs=None if logs is None else Path(logs),
            stdout=stdout,
            on_tick=on_tick,
            identity=job,
        )
    with job.acting():
        write_or_keep(as_trace(recording), path)
    result = as_result(recording, path)
    return Table(recording, replace(result, notes=(*result.notes, *said_of(user, job))))


@checked
def whatif(
    trace: str | Path,
    policies: Sequence[str] = POLICIES,
    *,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the trace's format, named as in traces.load
    options: Mapping[str, Any] | None = None,
    containers: Sequence[str] | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    settings: Settings = (),
    store: Where = None,
    engine: str = "local",
    jobs: int | None = None,
    progress: bool = True,
) -> Runs:
    """Replay a trace under several policies, with the same demand, global limits and random numbers.

    trace: a file, a public data set's folder, or a shipped recording's name. policies: `NAME[:KEY=VALUE]…`,
    or your own `FILE.py:CLASS(KEY=VALUE, …)`. start_s, end_s: the part to replay, s after the trace's start.
    settings: changes of the scenario, such as `{"seeds": [0, 1], "budget_factor": 2}`.
    """
    from lab.containers.input.whatif import whatif_scenario

    scenario = whatif_scenario(
        trace,
        policies,
        name=name,
        format=format,
        options=None if options is None else dict(options),
        containers=containers,
        start_s=start_s,
        end_s=end_s,
        overrides=_texts(settings),
    )
    return run(scenario, store=store, engine=engine, jobs=jobs, progress=progress)


@checked
def run(
    scenario: Asked,
    *,
    backend: Literal["twin", "testbed"] = "twin",
    settings: Settings = (),
    store: Where = None,
    engine: str = "local",
    jobs: int | None = None,
    repeat: int = 0,
    progress: bool = True,
) -> Runs:
    """Run a scenario with every policy, seed and varied value.

    scenario: a file, a shipped scenario's name, or the keys of one.
    backend: the twin, or this machine, which needs root. engine: where the twin runs: local, dask or
    dask://HOST:PORT. jobs: processes on this machine. repeat: number of this run among equal runs on the
    testbed. progress: show a bar on a terminal or in a notebook. Raises BackendError if the machine cannot
    run it.
    """
    from lab import kinds
    from lab.ask.scenario import expand
    from lab.cli.progress import Bar
    from lab.engine.local import LOCAL, distant
    from lab.runs.runner import run_scenario

    if backend not in ("twin", "testbed"):
        raise ScenarioError(f"backend {backend!r}: expected twin or testbed")
    question, target = _asked(scenario, settings), Store(store)
    with Bar(len(expand(question)), wanted=progress) as bar:
        if backend == "testbed":
            if engine != LOCAL:
                raise ScenarioError("--engine: the testbed is this machine; leave --engine or --backend out")
            return Runs(tuple(kinds.of(question).run_for_real(question, target, repeat, bar)))
        if repeat:
            raise ScenarioError(
                "--repeat: equal runs of the twin are equal; give --backend testbed or --seed"
            )
        return Runs(
            tuple(run_scenario(question, target, progress=bar, jobs=jobs, engine=distant(engine, jobs)))
        )


@checked
def sweep(
    scenario: Asked,
    vary: Mapping[str, Sequence[object]] | Sequence[str] = (),
    *,
    points: str | Path | None = None,
    seeds: Sequence[int] | None = None,
    shard: str | tuple[int, int] = "1/1",
    until: str | None = None,
    settings: Settings = (),
    store: Where = None,
    engine: str = "local",
    jobs: int | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Sweep:
    """Run a scenario on the twin at every combination of values, with every seed.

    vary: values by the scenario's dotted key, or by POLICY.PARAMETER; or `KEY=VALUE,…` texts. points: a CSV
    file of points, with keys in its header. shard: `I/N` or (I, N), the part of the sweep to run here. until:
    a rule that ends a point's seeds early, such as `ci(METRIC) < 5%`. resume: reuse the runs in the store.
    Runs that fail are in `swept.failures`.
    """
    from lab.cli.progress import Rate
    from lab.engine.local import engine as chosen_engine
    from lab.sweep.plan import Shard, SweepPlan
    from lab.sweep.points import points as points_of
    from lab.sweep.points import seeds_of
    from lab.sweep.rules import Until
    from lab.sweep.sweep import sweep as carry_out

    question = _asked(scenario, settings)
    texts = _varied(vary) if isinstance(vary, Mapping) else _texts(vary)
    chosen = question.seeds if seeds is None else seeds_of(seeds, "seeds")
    part = Shard.parse(shard if isinstance(shard, str) else "/".join(map(str, shard)))
    place, target = chosen_engine(engine, jobs), Store(store)
    with Rate(wanted=progress) as rate:
        # Many points take a while to check.
        made = points_of(question, texts, None if points is None else Path(points))
        plan = SweepPlan(question.name, made, chosen, part)
        rule = None if until is None else Until.parse(until, plan.kind)
        return Sweep(carry_out(plan, target, place, resume=resume, until=rule, told=rate.tell))


@checked
def compare(*runs: str | Run | Sequence[str | Run], store: Where = None) -> Runs:
    """Compare stored runs, given by id, by the beginning of an id, as runs, as results of `run`, or as lists
    of these."""
    from lab.runs.store import Run

    opened, given = Store(store), list[Run]()
    for run in runs:
        part = [run] if isinstance(run, str | Run) else run
        given += [opened.open(one) if isinstance(one, str) else one for one in part]
    return Runs(tuple(given))


@checked
def recommend(
    job: str | Path,
    *,
    by: Literal["cost", "time"] = "cost",
    deadline_s: float = inf,
    budget_usd: float = inf,
    budget_usd_h: float = inf,
    region: str = "us-central1",
    market: str = "on-demand",
    types: Sequence[str] = (),
    workers: Sequence[int] | None = None,
    batches: Sequence[int] = (),
    server: str = "",
    method: str = "transfer",
    loss: float | None = None,
    from_loss: float = inf,
    running: Mapping[str, int] | None = None,
    catalogue: str | Path | None = None,
    measurements: str | Path | None = None,
    shipped_runs: bool = True,
    search: bool = False,
    backend: Literal["testbed", "twin", "gcloud"] = "testbed",
    trials: int = 12,
    lease_s: float = 1800.0,
    cap_usd: float = inf,
    real: bool = False,
    zone: str = "",
    template: str = "",
    top: int = 10,
    progress: bool = True,
) -> Table:
    """Rank clusters for a training job (a file, or a shipped one's name) by cost or time, with intervals.

    deadline_s: longest time of the job, s. budget_usd: its largest cost. budget_usd_h: largest price of the
    cluster per hour. market: on-demand or spot. batches: sizes per worker to choose from. server: type of a
    parameter server. catalogue, measurements: files of prices and of past runs, None for those in use.
    shipped_runs: whether the shipped measured jobs are past runs, too. top: rows of the ranking.

    The result is a Ranking; `answer.next_step` says what to try next. With `method="spotdnn"` it is a plan of
    spot workers that train to `loss`; from_loss, running: present loss and workers by type, to plan again.
    With `search` it is a row per trial that was run on `backend`: at most `trials`, of `lease_s` each and
    `cap_usd` together. real, zone, template: whether and where Google Cloud may spend money.
    """
    from control.jobs import Objective
    from lab.ask import shipped
    from lab.cli.progress import Bar
    from lab.cloud.input import job_file
    from lab.cloud.input.price_list import in_use
    from lab.cloud.input.store import Measurements
    from lab.cloud.run import asynchronous, recommending
    from lab.cloud.run.table import result

    if by not in list(Objective):
        raise ScenarioError(f"by {by!r}: expected cost or time")
    if top < 1:
        raise ScenarioError(f"top is {top}; it must be 1 or more")
    path = shipped.path_of("job", job)
    file = job_file.load(path)
    prices = None if catalogue is None else Path(catalogue)
    if method == asynchronous.METHOD:
        given: dict[str, object] = {"by": by != "cost", "search": search, "market": market != "on-demand"}
        given |= {"types": types, "workers": workers, "batches": batches}
        asynchronous.check(loss, deadline_s, given | {"budget-per-hour": budget_usd_h < inf})
        asked = asynchronous.SpotdnnQuestion(
            loss or 0.0, deadline_s, budget_usd, region, server, from_loss, running or {}
        )
        plan = asynchronous.result(file, asked, in_use(prices))
        return Table(plan, plan)
    if loss is not None or from_loss < inf or running:
        raise ScenarioError("--loss, --from-loss and --running are for --method spotdnn; add it")
    widths = recommending.DEFAULT_WORKERS if workers is None else workers
    question = recommending.Question(
        job=job_file.as_job(file),
        market=recommending.Market(region, market, tuple(types), widths, server, tuple(batches)),
        objective=Objective(by),
        method=method,
        budget_usd=budget_usd,
        budget_usd_h=budget_usd_h,
        deadline_s=deadline_s,
        shipped=shipped_runs,
    )
    past = Measurements(None if measurements is None else Path(measurements))
    if measurements is not None and not search and not past.path.exists():
        cure = "twinbed measurements import makes it"
        raise ScenarioError(f"--measurements {measurements}: no such file; {cure}")
    if search:
        from lab.cloud.search import Backend, backends, table
        from lab.cloud.search.loop import Limits

        if backend not in list(Backend):
            raise ScenarioError(f"backend {backend!r}: expected {', '.join(Backend)}")
        place, paying = Backend(backend), backends.Paying(real, cap_usd, zone, template)
        limits = Limits(trials, lease_s=lease_s, cap_usd=cap_usd)
        found = backends.searched(
            question, file, path, in_use(prices), past, place, paying, limits, _said if progress else str
        )
        return Table(found, table.result(found, place))
    if real or cap_usd < inf or zone or template or (backend, trials, lease_s) != ("testbed", 12, 1800.0):
        names = "--backend, --trials, --trial-limit, --cap, --real, --zone and --template"
        raise ScenarioError(f"{names} are for --search; add it")
    with Bar(1, wanted=progress, preparing="learning from past jobs"):
        answer = recommending.answer(question, in_use(prices), past, most=top)
    return Ranking(answer, result(answer, by), deadline_s, budget_usd)


@checked
def advise(
    *traces: str | Path | Callable[[], Told],
    policies: Sequence[str] | None = None,
    risk: float = 0.05,
    seeds: int = 2,
    price: Mapping[str, object] | None = None,
    hosts: tuple[int, float] | None = None,
    format: str | None = None,  # noqa: A002 - the trace's format, named as in traces.load
    options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Advised:
    """Say what to set for each container of traces, rehearsed on their own history. Nothing is applied.

    traces: files, folders, shipped recordings' names, or functions that return a history. policies:
    candidates, None for all. risk: largest accepted share of throttled periods, 0 to 1. seeds: number of
    replays with other bursts. price: price of reservations, such as `{"cpu_core_hour": 0.03}`.
    hosts: number of hosts that the containers share in the rehearsal, and the cores of each; None for a host
    for each container. format, options: how trace files are read.
    """
    from control.advice.candidates import CANDIDATES
    from lab.ask.problems import validated
    from lab.cli.progress import Bar
    from lab.containers.advise import advising, table
    from lab.containers.advise.histories import read
    from lab.containers.advise.rehearsal import Hosts
    from lab.containers.calibrate.values import load_calibration
    from lab.containers.input.sections import Price

    if not traces:
        raise ScenarioError("advise: give at least one trace")
    wanted = advising.Wanted(
        policies=tuple(dict.fromkeys(policies or CANDIDATES)),
        risk=risk,
        seeds=tuple(range(seeds)),
        price=validated(Price, dict(price or {}), "--price"),
        hosts=None if hosts is None else Hosts(*hosts),
    )
    given = ({} if format is None else {"format": format}) | dict(options or {})
    histories = [trace() if callable(trace) else read(str(trace), given) for trace in traces]
    stages = len({*wanted.policies, "current"}) + 2
    with Bar(len(histories) * stages, wanted=progress) as bar:
        advice = advising.advise(histories, wanted, load_calibration().machine(), bar)
    return Advised(advice, table.result(advice), tuple(histories))


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    record, whatif, run, sweep, advise, recommend, compare, Store,
)  # fmt: skip
"""The functions of the reference page, in its order."""


def _asked(scenario: Asked, settings: Settings) -> Scenario:
    from lab.ask.scenario import build, load, with_overrides

    if isinstance(scenario, Mapping):
        scenario = build(as_in_a_file(scenario))
    loaded = load(scenario) if isinstance(scenario, str | Path) else scenario
    return with_overrides(loaded, _texts(settings)) if settings else loaded


def _texts(settings: Settings) -> list[str]:
    """Return `KEY=VALUE` texts, whose values are JSON, which is YAML."""
    if not isinstance(settings, Mapping):
        return list(settings)
    return [f"{key}={_plain(value)}" for key, value in settings.items()]


def _varied(vary: Mapping[str, Sequence[object]]) -> list[str]:
    for key, values in vary.items():
        if isinstance(values, str) or not isinstance(values, Collection):
            raise ScenarioError(f"vary: {key}: give a sequence of values, not {values!r}")
    return [f"{key}={_plain(list(values))}" for key, values in vary.items()]


def _plain(value: object) -> str:
    import json

    if isinstance(value, str):
        return value
    return json.dumps(as_in_a_file(value), default=str, ensure_ascii=False)


def _said(line: str) -> None:
    """Print a line of a search in progress."""
    import sys

    from twinbed.text import printable

    print(printable(line), file=sys.stderr, flush=True)
