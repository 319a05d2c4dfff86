"""A search in a closed loop: propose a cluster, launch the job on it, measure, store, propose again.

For: `twinbed recommend --search`, with every search of control/recommender and every provisioner. Not for:
deciding (control/recommender), nor for holding instances (provisioners). A trial measures some steps, and the
time of the whole job follows from them and the number of samples. Its cost is the cluster's price for that
time. The cost of the trial itself, the provider's bill, is counted separately. Trials go into the measurement
database as they end, so that an interrupted search loses nothing and the next answer uses them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from control.jobs import Candidates, Configuration, Flags, Job
from control.provisioner import Order, Provisioner, Reading
from control.recommender.ports import Observations, Request, Stop, failed, stop
from control.recommender.scavenger import to_goal
from lab.cloud.input.data_set import instance_type, rules_of
from lab.cloud.input.store import Measurements, Run
from lab.cloud.run.batches import lacks_noise, tunes_batch
from lab.cloud.run.recommending import Prepared, Question, bounds, prepared
from lab.cloud.search.held import nothing_left
from traces.catalogue.catalogue import Catalogue, Listing
from twin.cloud import performance, pricing
from twinbed import ScenarioError

STEPS = 20
"""Steps that a trial measures, as in the shipped table of measured jobs."""
MOST_FAILURES = 3
"""Failed trials in a row after which the job is taken to be broken."""
EVERY_FAILED = "every trial failed"
"""Problem of a search that found no cluster to take."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search.

    trials: largest number of trials.
    lease_s: longest time that a trial holds its instances, s as billed.
    cap_usd: most that all trials may cost, US$: a trial whose lease could cost more is not begun.

    Raises ScenarioError for values that allow no trial.
    """

    trials: int = 12
    lease_s: float = 1800.0
    cap_usd: float = np.inf

    def __post_init__(self) -> None:
        if self.trials < 1 or not self.lease_s >= 1:
            given = f"--trials {self.trials}, --trial-limit {self.lease_s:g}s"
            raise ScenarioError(f"{given}: a search needs at least 1 trial and 1 s")
        if not self.cap_usd > 0:
            raise ScenarioError(f"--cap {self.cap_usd:g}: expected an amount above 0 US$")


@dataclass(frozen=True, slots=True)
class Trial:
    """One trial.

    configuration: the cluster.
    price_usd_h: its price, US$/h.
    why: reason of the search for this trial.
    step_s: mean time of a step on the type, s; NaN where it failed.
    job_s, job_usd: time and cost of the whole job there, s and US$; NaN where it failed.
    held_s, spent_usd: billed time and cost of the trial itself, s and US$.
    problem: reason of its failure, "" if it did not fail.
    noise: noise scale of the gradients, samples, NaN if it was not measured.
    revoked: whether the provider took its spot instances back, which tells nothing about the cluster.
    """

    configuration: Configuration
    price_usd_h: float
    why: str
    step_s: float
    job_s: float
    job_usd: float
    held_s: float
    spent_usd: float
    problem: str = ""
    noise: float = np.nan
    revoked: bool = False

    def said(self) -> str:
        """Return the result of the trial as a line."""
        if self.problem:
            return f"{'revoked' if self.revoked else 'failed'}: {self.problem}"
        return (
            f"{1000 * self.step_s:.3g} ms a step, the job {self.job_s / 3600:.2f} h and "
            f"{self.job_usd:.2f} $; the trial cost {self.spent_usd:.4f} $"
        )


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of a search.

    trials: its trials in order.
    best: the configuration to take.
    price_usd_h: its price, US$/h.
    tried: whether `best` was measured, in this search or before.
    why: reason of the end of the search.
    known: number of trials of the job that the search started from.
    spent_usd: cost of all trials, US$.
    ready: the question, with the data before the search.
    problem: the bounds that `best` does not keep by its measurement, or that every trial failed; else "".
    """

    trials: tuple[Trial, ...]
    best: Configuration
    price_usd_h: float
    tried: bool
    why: str
    known: int
    spent_usd: float
    ready: Prepared
    problem: str


@dataclass(slots=True)
class Search:
    """A search in progress.

    question, catalogue, measurements: as for a recommendation.
    provisioner: holds the instances.
    command: makes the job's command from a batch size.
    directory: folder in which the command runs.
    limits: limits of the search.
    stored: whether trials are added to the measurements; a rehearsal's are not.
    noisy: whether trials measure the gradients' noise. If not, and if no earlier trial did, batches are not
        compared, except by a method that learns what they are worth itself.
    say: function called with a line when a trial begins and when it ends.
    heard: function called with each trial that has ended.
    source: source that trials are stored with.
    owner: mark of all instances of this search.
    """

    question: Question
    catalogue: Catalogue
    measurements: Measurements
    provisioner: Provisioner
    command: Callable[[int], tuple[str, ...]]
    directory: str = ""
    limits: Limits = field(default_factory=Limits)
    stored: bool = True
    noisy: bool = True
    say: Callable[[str], object] = str
    heard: Callable[[Trial], object] = str
    source: str = "search"
    owner: str = field(default_factory=lambda: f"twinbed-{secrets.token_hex(4)}")

    def run(self) -> Searched:
        """Search until the method stops or a limit is reached. Afterwards no instance is held.

        Raises ScenarioError for a job without samples or batch, without a cluster that the provisioner can
        launch, if the cap allows no trial and none is known, and after MOST_FAILURES failed trials in a row;
        BackendError if the backend refuses.
        """
        batch = _complete(self.question.job)
        ready = prepared(
            self.question,
            self.catalogue,
            self.measurements,
            keep=lambda among, used: self._launchable(among, used, batch),
            noisy=self.noisy,
        )
        request = ready.request
        search = ready.chosen.searcher(request, seed=0)
        observed, trials, spent, failures = request.observed, list[Trial](), 0.0, 0
        with nothing_left(self.provisioner, self.owner):
            while True:
                step = search.propose(self._to_goal(request, observed))
                if isinstance(step, Stop):
                    best, why = step.best, step.reason
                    break
                row = step.candidate
                configuration = request.candidates.configuration(row)
                price = float(request.candidates.price_usd_h[row])
                rules = rules_of(self.catalogue, ready.used[configuration.instance].provider)
                most = float(pricing.cost_usd(self.limits.lease_s, price, rules))
                if len(trials) >= self.limits.trials or spent + most > self.limits.cap_usd:
                    why = self._limit(len(trials), most, spent)
                    if not len(observed):
                        raise ScenarioError(f"no trial: {why}; raise --cap, or shorten --trial-limit")
                    ended = stop(request, self._to_goal(request, observed), why)
                    best, why = ended.best, ended.reason
                    break
                order = self._order(configuration, ready.used, batch, f"t{len(trials) + 1}")
                self.say(f"trial {len(trials) + 1}: {configuration} ({step.reason})")
                trial = self._trial(order, configuration, price, rules, step.reason)
                self.say(f"trial {len(trials) + 1}: {trial.said()}")
                spent, failures = spent + trial.spent_usd, failures + 1 if trial.problem else 0
                trials.append(trial)
                self.heard(trial)
                time_s = trial.held_s if trial.problem else trial.job_s
                if self.stored and not trial.revoked:
                    self.measurements.add([self._as_run(trial, time_s, ready.used)])
                paid = time_s / 3600 * price
                if not trial.revoked:
                    observed = observed.with_trial(row, time_s, paid, not trial.problem, trial.noise)
                if failures >= MOST_FAILURES:
                    raise ScenarioError(f"{failures} trials failed one after another: {trial.problem}")
        return Searched(
            trials=_revalued(trials, self._to_goal(request, observed)),
            best=request.candidates.configuration(best),
            price_usd_h=float(request.candidates.price_usd_h[best]),
            tried=bool((observed.candidate[observed.ok] == best).any()),
            why=why,
            known=len(request.observed),
            spent_usd=spent,
            ready=ready,
            problem=_unkept(ready.question, request.seen(self._to_goal(request, observed)), best),
        )

    def _to_goal(self, request: Request, observed: Observations) -> Observations:
        """Return the trials with time and cost until the job's goal, if batch sizes are tuned."""
        unknown = not self.noisy and lacks_noise(self.question, request.seen(observed))
        return to_goal(request, observed) if tunes_batch(self.question) and not unknown else observed

    def _trial(
        self, order: Order, configuration: Configuration, price: float, rules: pricing.Rules, why: str
    ) -> Trial:
        self.provisioner.launch(order)
        reading = self.provisioner.measure(order, STEPS)
        self.provisioner.stop(order.owner, order.token)
        step_s, job_s, job_usd = self._job(reading, order, price, rules)
        if reading.from_launch:
            rules = replace(rules, startup_s=0.0)
        billed_s = float(pricing.billed_s(reading.held_s, rules))
        spent = float(pricing.cost_usd(reading.held_s, price, rules))
        return Trial(
            configuration,
            price,
            why,
            step_s,
            job_s,
            job_usd,
            max(billed_s, 1e-3),
            spent,
            reading.problem,
            reading.noise,
            reading.revoked,
        )

    def _job(
        self, reading: Reading, order: Order, price: float, rules: pricing.Rules
    ) -> tuple[float, float, float]:
        if reading.problem:
            return np.nan, np.nan, np.nan
        step_s = float(reading.step_s.mean())
        steps = self.question.job.samples / (order.workers * order.batch)
        job_s = float(performance.job_s(steps, step_s, rules.startup_s))
        return step_s, job_s, job_s / 3600 * price

    def _order(
        self, configuration: Configuration, used: Mapping[str, Listing], batch: int, token: str
    ) -> Order:
        batch = configuration.batch or batch
        server = used[configuration.server_instance] if configuration.servers else None
        return Order(
            owner=self.owner,
            token=token,
            kind=instance_type(used[configuration.instance]),
            workers=configuration.workers,
            command=self.command(batch),
            batch=batch,
            lease_s=self.limits.lease_s,
            directory=self.directory,
            server=None if server is None else instance_type(server),
            spot=self.question.market.market == "spot",
            noisy=tunes_batch(self.question),
        )

    def _launchable(self, among: Candidates, used: Mapping[str, Listing], batch: int) -> Flags:
        """Return which candidates the provisioner can launch. Raises ScenarioError if it can launch none."""
        reasons = []
        for row in range(len(among)):
            configuration = among.configuration(row)
            reasons.append(self.provisioner.refusal(self._order(configuration, used, batch, "t0")))
        if all(reasons):
            raise ScenarioError(f"no cluster can be tried: {reasons[0]}")
        return np.array([not reason for reason in reasons], dtype=np.bool_)

    def _limit(self, trials: int, most: float, spent: float) -> str:
        if trials >= self.limits.trials:
            return f"the limit of {self.limits.trials} trials is reached"
        return (
            f"a further trial could cost {most:.2g} $ until its lease ends, and "
            f"{self.limits.cap_usd - spent:.2g} $ of the cap are left"
        )

    def _as_run(self, trial: Trial, time_s: float, used: Mapping[str, Listing]) -> Run:
        kind = instance_type(used[trial.configuration.instance])
        return Run(
            job=self.question.job.name,
            instance=kind.name,
            workers=trial.configuration.workers,
            time_s=time_s,
            price_usd_h=trial.price_usd_h,
            vcpus=kind.vcpus,
            memory_gib=kind.memory_gib,
            ok=not trial.problem,
            gpus=float(kind.gpus),
            network_bps=_known(kind.network_bps),
            cpu_speed=_known(kind.cpu_speed),
            batch=trial.configuration.batch,
            servers=trial.configuration.servers,
            server_instance=trial.configuration.server_instance,
            noise=_known(trial.noise),
            source=f"{self.source} {self.owner} {datetime.now(UTC):%Y-%m-%d}",
        )


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _complete(job: Job) -> int:
    """Return the job's batch size. Raises ScenarioError without it or the samples."""
    if job.batch is None or not np.isfinite(job.samples):
        raise ScenarioError(
            f"job {job.name}: a search needs `batch` and `samples` in the job's file; a trial measures "
            "steps, and the whole job's time follows from them"
        )
    return job.batch


def _unkept(question: Question, request: Request, best: int) -> str:
    """Return a sentence if the best candidate's trials failed, or do not keep the bounds, else ""."""
    observed = request.observed
    if failed(request, observed)[best]:
        return EVERY_FAILED
    measured = np.flatnonzero(observed.ok & (observed.candidate == best))
    late = observed.time_s[measured] > question.deadline_s
    dear = observed.cost_usd[measured] > question.budget_usd
    return f"no trial keeps {bounds(question)}" if measured.size and (late | dear).all() else ""


def _revalued(trials: Sequence[Trial], observed: Observations) -> tuple[Trial, ...]:
    """Return the trials with time and cost until the job's goal. observed: its last entries are those that
    were not revoked."""
    first = len(observed) - sum(not trial.revoked for trial in trials)
    goals = zip(observed.time_s[first:], observed.cost_usd[first:], strict=True)
    made = []
    for trial in trials:
        time_s, usd = (np.nan, np.nan) if trial.revoked else next(goals)
        made.append(trial if trial.problem else replace(trial, job_s=float(time_s), job_usd=float(usd)))
    return tuple(made)
