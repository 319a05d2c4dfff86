from lab.containers.validate.both import cells
from lab.runs.store import RunStore
from tests.lab.sample_cells import as_testbed
from tests.lab.sample_runs import publish


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
