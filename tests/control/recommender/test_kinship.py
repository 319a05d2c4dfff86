import numpy as np
import pytest

from control.recommender.kinship import FACTORS, weights
from control.recommender.ports import no_observations
from control.recommender.posterior import condition
from control.recommender.prior import fit_prior
from tests.control.recommender.made_jobs import clusters, history_of, time_of

NOBODY = np.zeros((0, 0))


def by_program(names: list[str], odds: float) -> np.ndarray:
    """Return log likelihoods under which jobs of a program resemble each other exp(odds) times as likely."""
    program = np.array([name.split("/")[0] for name in names])
    return odds * (program[:, None] == program[None, :])


def test_a_job_that_shares_no_part_weighs_one() -> None:
    assert weights("sort/spark", [], NOBODY).size == 0
    assert weights("sort/spark", ["join/hadoop", "plain"], np.zeros((2, 2))) == pytest.approx([1, 1])
    assert weights("", ["", "join"], np.zeros((2, 2))) == pytest.approx([1, 1])


def test_a_single_past_job_of_the_same_program_weighs_what_is_thought_of_any() -> None:
    assert weights("sort/large", ["sort/small"], np.zeros((1, 1))) == pytest.approx([np.mean(FACTORS)])


def test_parts_count_as_far_as_past_jobs_that_share_them_were_alike() -> None:
    names = ["sort/large", "sort/small", "join/large", "join/small"]
    shared = weights("scan/large", names, by_program(names, 20.0))
    assert shared[0] == shared[2] < 2.5, "of jobs on data of one size none was like another"
    assert shared[1] == shared[3] == pytest.approx(1)
    program = weights("join/huge", names, by_program(names, 20.0))
    assert program[2] > 5
    assert program[0] == pytest.approx(1)
    misled = weights("join/huge", names, by_program(names, -20.0))
    assert misled[2] < 2.5


def test_a_likelihood_of_a_job_by_itself_says_nothing() -> None:
    names = ["sort/large", "sort/small", "join/large"]
    likely = by_program(names, 5.0)
    once = weights("join/small", names, likely)
    assert weights("join/small", names, likely + 100 * np.eye(3)) == pytest.approx(once)


def test_all_beyond_the_last_part_counts_as_one_part() -> None:
    assert weights("a/b/c/d", ["a/b/c/e"], np.zeros((1, 1)))[0] < weights(
        "a/b/c/d", ["a/b/c/d"], np.zeros((1, 1))
    )


@pytest.mark.slow
def test_a_new_job_is_expected_to_be_like_its_kin() -> None:
    among = clusters()
    rng = np.random.default_rng(5)
    flat, steep = ((0.5, 1.0), (0.003, 1.0))
    times, names = [], []
    for program, (serial, penalty) in {"flat": flat, "steep": steep}.items():
        for place in range(3):
            noise = np.exp(0.03 * rng.standard_normal(len(among)))
            times.append(time_of(among, serial, 10.0, penalty, 1000.0) * noise)
            names.append(f"{program}/{place}")
    history = history_of(names, np.array(times))
    machines = among.vcpus * among.count
    small, large = int(machines.argmin()), int(machines.argmax())

    def gains(name: str) -> float:
        mean = condition(fit_prior(history, among, trust=0.9, name=name), no_observations()).summary()[0]
        return float(mean[small] - mean[large])

    assert gains("steep/new") > gains("other/new") > gains("flat/new")
