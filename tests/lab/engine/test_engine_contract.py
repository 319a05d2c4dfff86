"""One suite over every engine: what lab.engine.ports and lab.engine.running promise."""

import multiprocessing

import pytest

from lab.engine.local import Local
from lab.engine.local import engine as chosen
from lab.engine.ports import Outcome, Unit
from lab.engine.running import ATTEMPTS, kept, run
from tests.lab.engine import engine_work as work
from twinbed import BackendError, ScenarioError


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed", reason="the extra scale is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as made:
        yield made


@pytest.fixture(params=["this process", "local", "dask"])
def engine(request):
    if request.param == "dask":
        return chosen(request.getfixturevalue("cluster").scheduler_address)
    return Local(1 if request.param == "this process" else 2)


@pytest.fixture(params=["local", "dask"])
def apart(request):
    """An engine with workers of its own that are not this process, and which it starts again when they
    die."""
    if request.param == "dask":
        pytest.importorskip("distributed", reason="the extra scale is not installed")
        return chosen("dask", 2)
    return Local(2)


def done(outcomes):
    return {outcome.number: outcome.done for outcome in outcomes}


def test_every_unit_ends_once_and_all_progress_is_told(engine):
    seen = []
    outcomes = list(run(engine, [Unit(n) for n in range(7)], work.squared, lambda *said: seen.append(said)))
    assert len(outcomes) == 7
    assert done(outcomes) == {n: n * n for n in range(7)}
    assert sorted(seen) == [(f"unit {n}", 1.0) for n in range(7)]


def test_an_engine_that_is_kept_has_the_same_workers_for_several_runs_and_none_is_left(apart):
    children = {child.pid for child in multiprocessing.active_children()}
    with kept(apart, work.process) as engine:
        workers = [{*done(run(engine, [Unit(0)] * 8, work.process)).values()} for _ in range(3)]
    assert len(set.union(*workers)) <= 2
    assert {child.pid for child in multiprocessing.active_children()} <= children


def test_a_failed_unit_says_why_and_the_others_end(engine):
    outcomes = {each.number: each for each in run(engine, [Unit(n) for n in range(3)], work.refused)}
    assert isinstance(outcomes[1].error, ScenarioError)
    assert str(outcomes[1].error) == "unit 1: refused"
    assert (outcomes[0].done, outcomes[2].done) == (0, 2)


def test_a_unit_that_fails_now_and_then_is_tried_again(engine, tmp_path):
    outcomes = list(run(engine, [Unit((str(tmp_path), ATTEMPTS - 1))], work.counted))
    assert done(outcomes) == {0: ATTEMPTS - 1}


def test_a_unit_that_fails_every_time_is_given_up(engine, tmp_path):
    outcome = next(run(engine, [Unit((str(tmp_path), 99))], work.counted))
    assert str(outcome.error) == f"attempt {ATTEMPTS - 1} failed"
    assert len(list(tmp_path.iterdir())) == ATTEMPTS


def test_a_file_reaches_the_work_by_its_name_and_content(engine, tmp_path):
    file = tmp_path / "load.csv"
    file.write_text("1,2")
    units = [Unit(str(file), files=(str(file),))] * 3
    assert list(done(run(engine, units, work.content)).values()) == [("load.csv", "1,2")] * 3
    file.write_text("3,4")
    assert next(run(engine, units, work.content)).done == ("load.csv", "3,4")


def test_groups_that_are_not_wanted_are_left_out(engine):
    units = [Unit(n, group=str(n % 2)) for n in range(6)]
    outcomes = run(engine, units, work.squared, wanted=lambda group: group == "1")
    assert set(done(outcomes)) == {1, 3, 5}


def test_an_error_that_cannot_travel_is_told_in_words(engine):
    assert "1 2" in str(next(run(engine, [Unit(1)], work.unportable)).error)


def test_a_worker_that_dies_once_costs_nothing(apart, tmp_path):
    units = [Unit(""), Unit(str(tmp_path)), Unit("")]
    assert done(run(apart, units, work.deadly)) == {0: "", 1: str(tmp_path), 2: ""}


@pytest.mark.slow
def test_a_unit_that_kills_every_worker_is_told_from_the_others(apart):
    outcomes = {each.number: each for each in run(apart, [Unit(n == 1) for n in range(4)], work.murderous)}
    assert isinstance(outcomes[1].error, BackendError)
    assert [outcomes[n].done for n in (0, 2, 3)] == [False] * 3


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RuntimeError])
def test_what_progress_raises_stops_all_work_and_passes_through(engine, reason):
    def stop(label, fraction):
        raise reason

    with pytest.raises(reason):
        list(run(engine, [Unit(n) for n in range(9)], work.squared, stop))
    assert [child for child in multiprocessing.active_children() if "Nanny" not in child.name] == []


def test_a_result_that_was_lost_with_its_worker_is_made_again(cluster, monkeypatch):
    distributed = pytest.importorskip("distributed")
    gathers, lost = distributed.Client._gather, []

    async def lose(self, futures, **options):
        if len(lost) < 2:
            lost.append(futures)
            raise distributed.KilledWorker("a unit", None, 4)
        return await gathers(self, futures, **options)

    monkeypatch.setattr(distributed.Client, "_gather", lose)
    units = [Unit(n) for n in range(3)]
    assert done(run(chosen(cluster.scheduler_address), units, work.squared)) == {0: 0, 1: 1, 2: 4}
    assert len(lost) == 2


@pytest.mark.slow
def test_a_worker_that_was_about_to_begin_does_not_fail_the_session_that_closes(monkeypatch):
    process = pytest.importorskip("distributed.process", reason="the extra scale is not installed")
    before = multiprocessing.active_children()

    async def join(self, timeout=None):
        raise AssertionError("can only join a started process")

    def close(label, fraction):
        monkeypatch.setattr(process.AsyncProcess, "join", join)

    assert done(run(chosen("dask", 1), [Unit(3)], work.squared, close)) == {0: 9}
    assert [child for child in multiprocessing.active_children() if child not in before] == []


@pytest.mark.slow
def test_no_worker_outlives_a_session_that_takes_too_long_to_close(monkeypatch):
    pytest.importorskip("distributed", reason="the extra scale is not installed")
    before = multiprocessing.active_children()

    def hurry(label, fraction):
        monkeypatch.setattr("lab.engine.dask.REACH_S", 0.01)

    assert done(run(chosen("dask", 1), [Unit(3)], work.squared, hurry)) == {0: 9}
    assert [child for child in multiprocessing.active_children() if child not in before] == []


class Scripted:
    """An engine that carries out one unit after another, in no time, each taking as long as it says."""

    def __init__(self):
        self.begun = []

    def session(self, work, progress):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    width = 1

    def submit(self, number, unit):
        self.begun.append(number)
        self._last = number, unit

    def ended(self):
        number, unit = self._last
        return [Outcome(number, unit.asked, seconds=unit.asked)]


def test_every_group_is_begun_before_the_shortest_goes_on():
    engine = Scripted()
    units = [Unit(seconds, group=str(seconds)) for seconds in (3.0, 1.0, 2.0) for _ in range(2)]
    list(run(engine, units, work.squared))
    assert engine.begun == [0, 2, 4, 3, 5, 1]


class Fragile(Scripted):
    """An engine of two workers that die together, and whose first answer after a unit begins is none.

    deaths: the units under way at each death.
    """

    width = 2

    def __init__(self):
        super().__init__()
        self.deaths, self._under_way, self._new = [], {}, False

    def submit(self, number, unit):
        self._under_way[number], self._new = unit, True

    def ended(self):
        if self._new:
            self._new = False
            return []
        under_way, self._under_way = self._under_way, {}
        if not any(unit.asked for unit in under_way.values()):
            return [Outcome(number, "") for number in under_way]
        self.deaths.append(sorted(under_way))
        return [Outcome(number, error=BackendError("died"), lost=True) for number in under_way]


def test_a_unit_that_was_lost_is_repeated_alone():
    engine = Fragile()
    ended = {outcome.number: outcome.error for outcome in run(engine, [Unit(n == 1) for n in range(6)], None)}
    assert engine.deaths == [[0, 1], [1], [1]]
    assert [number for number, error in ended.items() if error] == [1]


class TestDask:
    """Failures that only an engine over the network can have."""

    def test_workers_with_other_code_are_refused_by_name(self, cluster, monkeypatch):
        monkeypatch.setattr("lab.engine.dask.code_sha256", lambda: "0" * 64)
        with pytest.raises(BackendError, match=r"worker tcp://.*: it has other code of twinbed, .* hash"):
            list(run(chosen(cluster.scheduler_address), [Unit(1)], work.squared))

    def test_a_scheduler_that_does_not_answer_is_one_line(self, monkeypatch):
        pytest.importorskip("distributed")
        monkeypatch.setattr("lab.engine.dask.REACH_S", 1)
        with pytest.raises(BackendError, match=r"127\.0\.0\.1:9: no Dask scheduler answers"):
            list(run(chosen("dask://127.0.0.1:9"), [Unit(1)], work.squared))

    def test_workers_that_give_no_answer_are_not_waited_for(self, cluster, monkeypatch):
        monkeypatch.setattr("lab.engine.dask._about", work.unanswered)
        monkeypatch.setattr("lab.engine.dask._ANSWER_S", 0.2)
        with pytest.raises(BackendError, match=r"gave no answer within 0\.2 s"):
            list(run(chosen(cluster.scheduler_address), [Unit(1)], work.squared))

    def test_own_workers_are_not_waited_for_without_end(self, monkeypatch):
        pytest.importorskip("distributed", reason="the extra scale is not installed")
        monkeypatch.setattr("lab.engine.dask.WORKERS_S", 1e-3)
        with pytest.raises(BackendError, match=r"1 workers did not start within 0\.001 s"):
            list(run(chosen("dask", 1), [Unit(3)], work.squared))

    def test_a_file_that_is_too_large_to_travel_is_read_where_the_worker_is(
        self, cluster, monkeypatch, tmp_path
    ):
        large, address = tmp_path / "large", cluster.scheduler_address
        monkeypatch.setattr("lab.engine.dask.MOST_BYTES", 2)
        monkeypatch.setattr("lab.engine.dask._Session._travelling", None)
        large.write_text("123")
        units = [Unit(str(large), files=(str(large),))]
        assert [outcome.done for outcome in run(chosen(address), units, work.content)] == [("large", "123")]
        monkeypatch.setattr("lab.engine.dask._size", lambda _: 4)
        outcome = next(run(chosen(address), units, work.content))
        assert "large is not there as it is here; folders, and files above" in str(outcome.error)

    def test_a_folder_must_be_where_the_worker_is(self, cluster, monkeypatch):
        monkeypatch.setattr("lab.engine.dask.Path.is_dir", lambda _: True)
        outcome = next(run(chosen(cluster.scheduler_address), [Unit(1, files=("/mine",))], work.squared))
        assert "/mine is not there as it is here; folders, and files above" in str(outcome.error)


@pytest.mark.parametrize("text", ["slurm", "dask://", "dask://host", "tcp://host:x", ""])
def test_an_engine_that_does_not_exist_is_refused(text):
    with pytest.raises(ScenarioError, match="--engine"):
        chosen(text)
