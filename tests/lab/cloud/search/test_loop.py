"""A search in a closed loop over virtual instances: every method, every fault, and what is learned."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from control.jobs import Job, LocalRun
from control.provisioner import cannot_run
from lab.answers import Table
from lab.cloud.input.store import Measurements
from lab.cloud.run.recommending import Market, Question, answer
from lab.cloud.search import Backend, table
from lab.cloud.search.loop import Limits, Search
from traces.catalogue.catalogue import load
from twin.cloud.provisioner import Virtual
from twinbed import BackendError, ScenarioError

MARKET = Market("us-central1", types=("n1-standard-4", "n1-standard-8", "e2-standard-16"), workers=(1, 2, 4))
JOB = Job("mine", batch=64, samples=6e7)
pytestmark = pytest.mark.slow

CATALOGUE = load()
CALLS = ("refusal", "launch", "measure", "stop", "held")


def step_s(order) -> float:
    """Amdahl's law over vCPUs, and a ring: 4 × n1-standard-4 is among the fastest, one is the cheapest."""
    return 0.2 / order.kind.vcpus + 0.002 + 0.004 * (order.workers > 1)


def search(database, cloud=None, method="cherrypick", market=MARKET, job=JOB, **others) -> Search:
    question = Question(job, market, method=method, shipped=False)
    return Search(question, CATALOGUE, database, cloud or Virtual(step_s), lambda batch: ("train",), **others)


@pytest.fixture
def database(tmp_path) -> Measurements:
    return Measurements(tmp_path / "m.duckdb")


def true_usd(order_workers: int, vcpus: float, price: float) -> float:
    step = 0.2 / vcpus + 0.002 + 0.004 * (order_workers > 1)
    return step * JOB.samples / (64 * order_workers) * price / 3600


@pytest.mark.parametrize("method", ["cherrypick", "ernest", "transfer", "random", "exhaustive"])
def test_every_search_ends_with_a_good_cluster_and_its_trials_stored(database, method):
    cloud = Virtual(step_s)
    found = search(database, cloud, method).run()
    assert found.trials
    assert not cloud._instances
    runs = database.runs()
    assert [(run.instance, run.workers) for run in runs] == [
        (trial.configuration.instance, trial.configuration.workers) for trial in found.trials
    ]
    assert [run.time_s for run in runs] == [trial.job_s for trial in found.trials]
    among = found.ready.request.candidates
    usd = [true_usd(*row) for row in zip(among.count, among.vcpus, among.price_usd_h, strict=True)]
    rows = [among.configuration(row) for row in range(len(among))]
    assert usd[rows.index(found.best)] <= 1.25 * min(usd)
    assert found.spent_usd == pytest.approx(sum(trial.spent_usd for trial in found.trials))


def test_a_best_cluster_that_keeps_no_bound_is_told(database):
    found = search(database).run()
    assert found.problem == ""
    asked = search(database)
    asked.question = replace(asked.question, deadline_s=60.0)
    late = asked.run()
    assert late.problem == "no trial keeps the deadline of 60 s"
    assert table.result(late, Backend.TWIN).facts["bounds"] == late.problem
    assert not Table(late, table.result(late, Backend.TWIN)).has_answer


def test_a_rehearsal_comes_out_the_same_again(tmp_path):
    first, again = (search(Measurements(tmp_path / f"{name}.duckdb")).run() for name in "ab")
    assert [trial.step_s for trial in first.trials] == [trial.step_s for trial in again.trials]
    assert first.best == again.best


def test_what_was_tried_is_past_experience_of_the_next_question(database):
    found = search(database).run()
    again = answer(Question(JOB, MARKET, shipped=False), CATALOGUE, database)
    assert f"{len(found.trials)} trials of this job" in again.notes[0]
    assert any(row.reason.startswith("measured in trial") for row in again.ranking)
    assert len(search(database).run().trials) < len(found.trials)
    other = answer(Question(replace(JOB, name="other"), MARKET, shipped=False), CATALOGUE, database)
    assert "Known: 1 other job of yours" in other.notes[0]


@pytest.mark.parametrize("method", ["scavenger", "exhaustive"])
def test_batches_are_compared_by_what_reaching_the_goal_takes(database, method):
    market = replace(MARKET, types=("n1-standard-4",), workers=(1, 2), batches=(32, 64, 128, 256))
    cloud = Virtual(lambda order: 0.05 + 0.002 * order.batch + 0.01 * (order.workers > 1), noise=300.0)
    found = search(database, cloud, method, market, limits=Limits(trials=20)).run()
    # By hand, one worker: (0.05 + 0.002 b) / b · (300 + b) / 364 is least at b = 87, so 64 or 128.
    (least,) = [trial for trial in found.trials if trial.configuration == found.best]
    assert least.job_usd == min(trial.job_usd for trial in found.trials)
    batch = least.configuration.batch
    assert batch in (64, 128)
    by_hand_s = (0.05 + 0.002 * batch) * JOB.samples / batch * (300 + batch) / 364
    assert least.job_s == pytest.approx(by_hand_s, rel=0.03)
    assert {run.noise for run in database.runs()} == {300.0}
    assert min(trial.configuration.batch * trial.configuration.workers for trial in found.trials) == 64
    asked = Question(JOB, market, method=method, shipped=False)
    assert answer(asked, CATALOGUE, database).ranking[0].configuration == found.best


def test_batches_whose_worth_no_trial_measures_are_left_out_and_workers_count(database):
    """Without noise a rehearsal took every sample beyond the first batch for worthless."""
    market = replace(MARKET, types=("n1-standard-4",), workers=(1, 2), batches=(32, 64, 128))
    cloud = Virtual(lambda order: 0.05 + 0.002 * order.batch + 0.01 * (order.workers > 1))
    found = search(database, cloud, "exhaustive", market, stored=False, noisy=False).run()
    tried = {(trial.configuration.workers, trial.configuration.batch): trial for trial in found.trials}
    assert set(tried) == {(1, 64), (2, 64)}
    assert tried[1, 64].job_s == pytest.approx(0.178 * JOB.samples / 64, rel=0.03)
    assert tried[2, 64].job_s == pytest.approx(0.188 * JOB.samples / 128, rel=0.03)
    assert any("noise" in note for note in found.ready.notes)


def test_scala_opt_m_is_one_trial_with_its_server(database):
    ones = np.ones((4, 1))
    run = LocalRun(1.0, ones, ones, ones, ones, np.full(5, 0.2), batch=64, parameters=5_000_000)
    market = replace(MARKET, types=("n1-standard-4",), server="n1-standard-8", workers=(1, 2, 3, 4, 6, 8))
    job = replace(JOB, local_run=run)
    found = search(database, None, "scala-opt-m", market, job).run()
    (trial,) = found.trials
    assert trial.configuration == found.best
    assert trial.configuration.servers == 1
    assert database.runs()[0].server_instance == "n1-standard-8"


@dataclass
class Faulty:
    """A provisioner of which the n-th call fails, before or after its effect; it fails only once."""

    fault_at: int | None
    late: bool
    error: type[BaseException] = BackendError
    cloud: Virtual = field(default_factory=lambda: Virtual(step_s))
    calls: int = 0

    def __getattr__(self, name):
        if name not in CALLS:
            raise AttributeError(name)

        def called(*arguments):
            number, self.calls = self.calls, self.calls + 1
            if number == self.fault_at and not self.late:
                raise self.error(f"{name} failed")
            answered = getattr(self.cloud, name)(*arguments)
            if number == self.fault_at:
                raise self.error(f"{name} failed after its effect")
            return answered

        return called


@pytest.mark.parametrize("error", [BackendError, KeyboardInterrupt])
@pytest.mark.parametrize("late", [False, True])
def test_a_fault_at_any_call_leaves_nothing_billable(database, late, error):
    market = replace(MARKET, types=("n1-standard-4",), workers=(1, 2))

    def lives(fault_at) -> int:
        cloud = Faulty(fault_at, late, error)
        with suppress(error):
            search(database, cloud, "exhaustive", market, stored=False).run()
        assert not cloud.cloud._instances, f"after a fault at call {fault_at}"
        return cloud.calls

    for fault_at in range(lives(None)):
        lives(fault_at)


def test_a_store_that_refuses_leaves_nothing_billable(tmp_path):
    (tmp_path / "m.duckdb").mkdir()
    cloud = Virtual(step_s)
    with pytest.raises(Exception, match="not a database"):
        search(Measurements(tmp_path / "m.duckdb"), cloud).run()
    assert not cloud._instances


def test_a_cloud_that_keeps_failing_is_named_with_what_it_still_holds(database):
    class Stuck(Virtual):
        def stop(self, owner, token):
            raise BackendError("no permission")

    with pytest.raises(BackendError, match=r"twinbed-x-t1-0.*: still held \(no permission\); delete"):
        search(database, Stuck(step_s), owner="twinbed-x").run()


def test_a_cap_is_never_passed_even_if_every_lease_were_used_up(database):
    cloud = Virtual(step_s)
    found = search(database, cloud, "exhaustive", limits=Limits(lease_s=3600.0, cap_usd=0.40)).run()
    assert "of the cap are left" in found.why
    for number, trial in enumerate(found.trials):
        before = sum(earlier.spent_usd for earlier in found.trials[:number])
        assert before + trial.price_usd_h * 1.0 <= 0.40
    assert found.tried
    with pytest.raises(ScenarioError, match=r"no trial: a further trial could cost .*; raise --cap, or"):
        search(Measurements(database.path.with_name("none.duckdb")), limits=Limits(cap_usd=0.01)).run()


def test_limits_of_trials_and_a_broken_job(database):
    assert len(search(database, method="exhaustive", limits=Limits(trials=2)).run().trials) == 2

    class Broken(Virtual):
        def measure(self, order, steps):
            return cannot_run(0.5, "no module named data")

    two = replace(MARKET, types=("n1-standard-4",), workers=(1, 2))
    new = replace(JOB, name="new")
    found = search(database, Broken(step_s), "exhaustive", two, job=new, stored=False).run()
    assert found.problem == "every trial failed"
    told = table.result(found, Backend.TESTBED)
    assert told.facts["take"] == "none"
    assert told.notes[0].startswith("Take none: every trial failed. Correct the job")
    cloud = Broken(step_s)
    with pytest.raises(ScenarioError, match="3 trials failed one after another: no module named data"):
        search(database, cloud, "random").run()
    assert not cloud._instances
    assert [run.ok for run in database.runs()][-3:] == [False] * 3


@pytest.mark.parametrize("job", [replace(JOB, batch=None), replace(JOB, samples=float("nan"))])
def test_a_job_without_batch_or_samples_is_refused_before_anything_is_launched(database, job):
    cloud = Virtual(step_s)
    with pytest.raises(ScenarioError, match="needs `batch` and `samples`"):
        search(database, cloud, job=job).run()
    assert not cloud.now_s


def test_what_the_backend_cannot_launch_is_not_proposed(database):
    cloud = Virtual(lambda order: step_s(order) if order.workers == 1 else float("nan"))
    found = search(database, cloud, "exhaustive").run()
    assert {trial.configuration.workers for trial in found.trials} == {1}
    with pytest.raises(ScenarioError, match="no cluster can be tried: the model"):
        search(database, Virtual(lambda order: float("nan"))).run()


def test_few_trials_and_short_steps_are_told_in_words_and_digits(database):
    search(database, limits=Limits(trials=1)).run()
    found = search(database, Virtual(lambda order: step_s(order) / 100), limits=Limits(trials=1)).run()
    notes = " ".join(table.result(found, Backend.TWIN).notes)
    assert "1 trial after 1 trial that was known cost" in notes
    assert "Known trials were real runs" in notes
    (trial,) = found.trials
    assert trial.said().startswith(f"{1000 * trial.step_s:.3g} ms a step")
    assert float(trial.said().split()[0]) == pytest.approx(1000 * trial.step_s, rel=0.01)


def test_a_type_may_be_named_with_its_provider(database):
    market = replace(MARKET, types=("gcp/n1-standard-4",), workers=(1,))
    (trial,) = search(database, None, "exhaustive", market).run().trials
    assert trial.configuration.instance == "gcp/n1-standard-4"


def test_a_known_trial_on_a_narrower_cluster_is_no_cluster_to_try(database):
    one = replace(MARKET, types=("n1-standard-4",), workers=(1,))
    search(database, None, "exhaustive", one).run()
    cloud = Virtual(lambda order: step_s(order) if order.workers == 1 else float("nan"))
    with pytest.raises(ScenarioError, match="no cluster can be tried: the model"):
        search(database, cloud, "transfer", replace(one, workers=(2, 4))).run()


def test_a_search_that_began_without_any_figure_keeps_the_deadline(database):
    asked = search(database, method="transfer")
    asked.question = replace(asked.question, deadline_s=3 * 3600.0)
    found = asked.run()
    (best,) = (trial for trial in found.trials if trial.configuration == found.best)
    assert best.job_s <= 3 * 3600
    assert found.problem == ""
    assert "cannot be told" not in " ".join(table.result(found, Backend.TWIN).notes)


def test_a_revoked_trial_is_paid_and_tells_nothing_about_its_cluster(database):
    lost = []

    class LosesTheFirst(Virtual):
        def measure(self, order, steps):
            if lost:
                return super().measure(order, steps)
            lost.append(order)
            return cannot_run(7.0, "it was taken away", revoked=True)

    found = search(database, LosesTheFirst(step_s)).run()
    first, second = found.trials[:2]
    assert (first.said(), first.spent_usd > 0) == ("revoked: it was taken away", True)
    assert first.configuration == second.configuration
    assert len(database.runs()) == len(found.trials) - 1
    assert all(run.ok for run in database.runs())


@pytest.mark.parametrize("from_launch", [False, True])
def test_a_trial_pays_for_its_start_up_once_as_the_job_does(database, from_launch):
    class Measured(Virtual):
        def measure(self, order, steps):
            return replace(super().measure(order, steps), held_s=400.0, from_launch=from_launch)

    (trial,) = search(database, Measured(step_s), limits=Limits(trials=1)).run().trials
    assert trial.held_s == (400 if from_launch else 400 + 180)
    assert trial.spent_usd == pytest.approx(trial.held_s / 3600 * trial.price_usd_h)
    assert trial.job_usd == pytest.approx(trial.job_s / 3600 * trial.price_usd_h)
