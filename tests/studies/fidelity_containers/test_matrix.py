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
