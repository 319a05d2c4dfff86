import pytest

from lab.ask.scenario import build
from lab.containers.real import backend
from lab.containers.validate import both
from lab.containers.validate.both import cells
from lab.runs.store import RunStore
from testbed.containers.host import loop
from tests.lab.sample_cells import as_testbed, fitting
from tests.lab.sample_observed import observed
from tests.lab.sample_runs import publish
from twinbed import BackendError

MIB = 1 << 20


@pytest.fixture
def question():
    steps = [{"duration_s": 1, "cpu_cores": 0.2}]
    containers = [{"name": "a", "threads": 1, "memory_bytes": 48 * MIB, "steps": steps}]
    return build({"name": "load", "workload": {"containers": containers}, "policies": ["static", "escra"]})


@pytest.fixture
def imitated(monkeypatch):
    """A control loop that runs nothing; the policies that it was asked to run, in order."""
    asked = []

    def control(containers, applications, allocator, settings, *, client=None, **_more):
        asked.append(allocator.name)
        return observed(tuple(each.spec.name for each in containers), 10)

    monkeypatch.setattr(loop, "control", control)
    monkeypatch.setattr(backend, "check", lambda: None)
    monkeypatch.setattr(backend, "probe", fitting)
    return asked


def test_every_policy_is_a_cell_with_a_twin_and_its_repeats(tmp_path, question, imitated):
    cells = both.validate(question, RunStore(tmp_path), repeats=3)
    assert [each.policy for each in cells] == ["static", "escra"]
    for each in cells:
        assert [run.manifest["backend"] for run in each.twin] == ["twin"] * both.DRAWS
        assert [run.manifest["spec"]["draw"] for run in each.twin] == list(range(both.DRAWS))
        assert [run.manifest["repeat"] for run in each.testbed] == [0, 1, 2]
    # All policies before the next repeat, so that a machine that changes shows as spread, and in turns.
    assert imitated == ["static", "escra", "escra", "static", "static", "escra"]


def test_a_question_without_chance_is_drawn_once(question):
    assert [asked.draw for asked in both.drawn(question)] == list(range(both.DRAWS))
    recorded = build({"name": "recorded", "trace": {"source": "w.parquet"}})
    assert both.drawn(recorded) == [recorded]


def test_what_is_stored_is_not_run_again_unless_asked(tmp_path, question, imitated):
    store = RunStore(tmp_path)
    both.validate(question, store, repeats=1)
    both.validate(question, store, repeats=2, fresh=False)
    assert imitated == ["static", "escra", "escra", "static"]
    both.validate(question, store, repeats=1)
    assert len(imitated) == 6


def test_progress_names_the_backend(tmp_path, question, imitated):
    seen = set()
    both.validate(
        question, RunStore(tmp_path), repeats=1, progress=lambda label, f: seen.add(label.split(":")[0])
    )
    assert seen >= {"twin"}


def test_without_cgroups_not_even_the_twin_is_run(tmp_path, question, monkeypatch):
    def refuse():
        raise BackendError("no cgroups; run as root")

    monkeypatch.setattr(backend, "check", refuse)
    store = RunStore(tmp_path)
    with pytest.raises(BackendError, match="root"):
        both.validate(question, store)
    assert store.ids() == []


def test_runs_of_both_backends_that_answer_the_same_question_are_a_cell(tmp_path):
    store = RunStore(tmp_path)
    escra, static = (publish(store, text, statuses=("ok",)) for text in ("escra", "static"))
    found = cells([escra, static, as_testbed(escra, 0), as_testbed(escra, 1)])
    assert [(each.policy, len(each.twin), len(each.testbed)) for each in found] == [("escra", 1, 2)]
    assert found[0].variant == "burst"


def test_other_conditions_and_seeds_are_other_questions(tmp_path):
    store = RunStore(tmp_path)
    plain, other = publish(store), publish(store, spec={"budget_factor": 3.0})
    assert cells([plain, as_testbed(other, 0)]) == []
    assert cells([plain, as_testbed(publish(store, seed=1), 0)]) == []
    (found,) = cells([plain, publish(store, seed=1), as_testbed(plain, 0)])
    assert [run.seed for run in found.twin] == [0]
