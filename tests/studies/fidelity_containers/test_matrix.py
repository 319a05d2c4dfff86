import pytest

from lab.ask.scenario import expand
from studies.fidelity_containers import matrix
from twinbed import ScenarioError


def test_the_matrix_has_sixty_four_cells_and_says_how_long_it_takes():
    questions = matrix.scenarios()
    assert sum(len(expand(question)) for question in questions) == 64
    assert 30 * 60 < matrix.estimate_s(questions, 3) < 60 * 60
    longer = matrix.scenarios(duration_s=matrix.DURATION_S)
    assert min(matrix.length_s(question) for question in longer) == 30.0
    assert matrix.estimate_s(longer, matrix.REPEATS) < 200 * 60
    assert matrix.estimate_s(matrix.scenarios(["step"]), 3) < 6 * 60


def test_a_part_and_a_duration_can_be_chosen():
    (tea,) = matrix.scenarios(["teastore"], 4.0)
    assert tea.services.duration_s == 4.0
    with pytest.raises(ScenarioError, match="there are step, on_off"):
        matrix.scenarios(["tea"])


def test_a_few_loads_are_drawn_the_same_ones_every_time():
    tea, step = matrix.scenarios(["teastore", "step"], few=3)
    (loads,) = tea.vary.values()
    assert len(loads) == 3
    assert len(expand(tea)) == 9
    assert len(expand(step)) == 3
    assert matrix.scenarios(["teastore"], few=3) == [tea]
    (whole,) = matrix.scenarios(["teastore"])
    assert [load for load in whole.vary["services.arrivals"] if load in loads] == loads
