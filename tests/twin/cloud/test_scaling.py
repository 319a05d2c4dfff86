from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from twin.cloud import scaling
from twin.cloud.scaling import Scaling, Shape, Steps
from twinbed import InvariantError, ScenarioError

PLACES = [(1, 1, 1), (1, 2, 2), (1, 4, 4), (2, 2, 1), (2, 4, 2), (2, 8, 4), (4, 4, 1), (4, 16, 4)]
BATCHES = (8, 16, 32)
SPEED = {"old": 1.0, "new": 3.0}


def job(name: str, compute: float, sync: float, overlap: float = 2.0, noise: float = 0.0) -> Steps:
    """Steps that follow the model: compute ∝ batch / speed, sync grows with nodes and GPUs per node."""
    draw = np.random.default_rng(len(name))
    rows = []
    for kind, speed in SPEED.items():
        for nodes, gpus, most in PLACES:
            for batch in BATCHES:
                alone = compute * batch / speed
                shared = sync * nodes**0.3 * most**0.5 if gpus > 1 else 0.0
                step = (alone**overlap + shared**overlap) ** (1 / overlap)
                rows.append((kind, nodes, gpus, most, batch, step * np.exp(noise * draw.standard_normal())))
    kind, *numbers = zip(*rows, strict=True)
    return Steps(
        np.full(len(rows), name, dtype=np.object_),
        np.array(kind, dtype=np.object_),
        *(np.array(column, dtype=np.float64) for column in numbers),
    )


def together(*jobs: Steps) -> Steps:
    names = ("job", "accelerator", "nodes", "gpus", "most", "batch", "step_s")
    return Steps(*(np.concatenate([getattr(column, name) for column in jobs]) for name in names))


def alone_and(job_steps: Steps, nodes: int, gpus: int) -> np.ndarray:
    probe = (job_steps.nodes == nodes) & (job_steps.gpus == gpus) & (job_steps.batch == 16)
    return (job_steps.alone | probe) & (job_steps.accelerator == "old")


OTHERS = together(job("a", 0.01, 0.2), job("bb", 0.002, 0.3), job("ccc", 0.05, 0.1))


def test_a_job_that_follows_the_model_is_told_from_one_probe():
    mine = job("mine", 0.02, 0.5)
    known = alone_and(mine, 2, 8)
    predicted = Scaling(OTHERS, Shape(2.0, 0.05)).predict(mine.take(known), mine.hidden())
    assert np.allclose(predicted, mine.step_s, rtol=0.02)


def test_what_is_asked_has_no_times():
    assert np.isnan(job("mine", 0.02, 0.5).hidden().step_s).all()


def test_a_second_probe_is_used():
    mine = job("mine", 0.02, 0.5, noise=0.1)
    one, two = alone_and(mine, 2, 8), alone_and(mine, 2, 8) | alone_and(mine, 4, 16)
    model = Scaling(OTHERS, Shape(2.0, 0.05))
    assert not np.allclose(
        model.predict(mine.take(one), mine.hidden()), model.predict(mine.take(two), mine.hidden()), rtol=1e-3
    )


def test_without_a_probe_synchronisation_is_as_the_others():
    mine = job("mine", 0.01, 0.2)
    predicted = Scaling(together(job("a", 0.01, 0.2), job("b", 0.01, 0.2)), Shape(2.0, 0.05)).predict(
        mine.take(mine.alone & (mine.accelerator == "old")), mine.hidden()
    )
    middle = mine.batch == 16
    assert np.allclose(
        predicted[middle & (mine.accelerator == "old")], mine.step_s[middle & (mine.accelerator == "old")]
    )


def test_a_larger_job_is_scaled_as_a_whole():
    """Time has no unit of its own: everything ten times as long is told ten times as long."""
    mine = job("mine", 0.02, 0.5)
    known = alone_and(mine, 2, 8)
    model = Scaling(OTHERS, Shape(1.5, 0.1))
    predicted = model.predict(mine.take(known), mine.hidden())
    longer = Steps(
        *(getattr(mine, n) for n in ("job", "accelerator", "nodes", "gpus", "most", "batch")),
        mine.step_s * 10,
    )
    assert np.allclose(model.predict(longer.take(known), mine.hidden()), predicted * 10)


def test_shape_is_chosen_on_the_other_jobs():
    others = together(
        *(
            job(name, c, s, overlap=3.0)
            for name, c, s in [("a", 0.03, 0.5), ("bb", 0.01, 0.4), ("c", 0.02, 0.6)]
        )
    )
    plans = [lambda steps: alone_and(steps, 2, 8), lambda steps: alone_and(steps, 2, 2)]
    choice = scaling.choose(others, others.job, plans)
    assert choice.shape.overlap == 3.0
    assert sorted(choice.ranking) == [0, 1]
    assert choice.error < 0.02
    assert choice.width < 0.1


def test_a_job_gets_the_best_plan_that_suits_it():
    """No placement is common to all jobs, so every job has a plan of its own."""
    jobs = [job("a", 0.03, 0.5), job("bb", 0.01, 0.4), job("ccc", 0.02, 0.6)]
    others = together(*(own.take(own.nodes != gone) for own, gone in zip(jobs, (4, 2, 4), strict=True)))

    def at(nodes: int):
        def known(steps: Steps) -> np.ndarray:
            mask = alone_and(steps, nodes, 4 * nodes)
            return mask if (mask & ~steps.alone).any() else np.zeros_like(mask)

        return known

    plans = [at(2), at(4)]
    choice = scaling.choose(others, others.job, plans, [Shape(2.0, 0.1)])
    for name, probed in (("a", 2), ("bb", 4), ("ccc", 2)):
        steps = others.take(others.job == name)
        mask = choice.known(plans, steps)
        assert set(steps.nodes[mask & ~steps.alone]) == {probed}
    assert not choice.known(plans, others.take(others.nodes == 1)).any()


def test_plans_that_suit_no_job_are_refused():
    with pytest.raises(ScenarioError, match="no plan suits any other job"):
        scaling.choose(OTHERS, OTHERS.job, [lambda steps: ~steps.alone], [Shape(2.0, 0.1)])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda steps: ~steps.alone, "not run on one GPU"),
        (lambda steps: steps.alone & (steps.batch == 0), "not run on one GPU"),
    ],
)
def test_a_job_that_never_ran_alone_is_refused(rows, message: str):
    mine = job("mine", 0.02, 0.5)
    with pytest.raises(ScenarioError, match=message):
        Scaling(OTHERS, Shape(2.0, 0.1)).predict(mine.take(rows(mine)), mine.hidden())


def test_an_accelerator_nobody_used_is_named():
    mine = job("mine", 0.02, 0.5)
    old = Scaling(OTHERS.take(OTHERS.accelerator == "old"), Shape(2.0, 0.1))
    known = mine.take(mine.alone & (mine.accelerator == "old"))
    with pytest.raises(ScenarioError, match="one GPU of new and of old"):
        old.predict(known, mine.hidden())
    alone = OTHERS.take(OTHERS.alone)
    with pytest.raises(ScenarioError, match="no other job ran on several GPUs"):
        Scaling(alone, Shape(2.0, 0.1)).predict(known, mine.hidden())


def test_an_accelerator_is_reached_over_a_third_one():
    def on(own: Steps, name: str) -> Steps:
        rows = own.take((own.accelerator == "new") & own.alone)
        return Steps(
            *(
                np.full(len(rows), name, dtype=np.object_)
                if column == "accelerator"
                else getattr(rows, column)
                for column in own.__slots__
            )
        )

    newest = on(job("bb", 0.002, 0.3), "newest")
    newest = Steps(
        *(newest.step_s / 2 if column == "step_s" else getattr(newest, column) for column in newest.__slots__)
    )
    bb = job("bb", 0.002, 0.3)
    others = together(job("a", 0.01, 0.2), bb.take(bb.accelerator == "new"), newest)
    mine = job("mine", 0.02, 0.5)
    known = mine.take(mine.alone & (mine.accelerator == "old"))
    asked = on(mine, "newest")
    model = Scaling(others, Shape(2.0, 0.1))
    assert model.tells(known, asked).all()
    # Six times the old one's speed: three times to the new one, twice to the newest.
    assert model.predict(known, asked) == pytest.approx(known.step_s / 6)
    assert not model.tells(known, on(mine, "unknown")).any()


def test_a_job_without_a_run_on_one_gpu_of_an_accelerator_still_tells_its_placements():
    """On the new accelerator all wait four times as long, and only `bb` ran there on four nodes."""

    def waiting(own: Steps) -> Steps:
        key = list(zip(own.accelerator, own.batch, strict=True))
        alone = {k: s for k, s, one in zip(key, own.step_s, own.alone, strict=True) if one}
        compute = np.array([alone[k] for k in key])
        sync = np.sqrt(own.step_s**2 - compute**2) * np.where(own.accelerator == "new", 4.0, 1.0)
        return replace(own, step_s=np.hypot(compute, sync))

    a, bb, mine = (waiting(job(*of)) for of in (("a", 0.01, 0.2), ("bb", 0.002, 0.3), ("mine", 0.02, 0.5)))
    others = together(a.take(a.nodes < 4), bb.take(~(bb.alone & (bb.accelerator == "new"))))
    asked = mine.take((mine.accelerator == "new") & (mine.gpus == 16))
    told = Scaling(others, Shape(2.0, 0.1)).predict(mine.take(alone_and(mine, 2, 8)), asked.hidden())
    assert np.allclose(told, asked.step_s, rtol=0.02)


def test_compute_is_at_most_a_measured_step():
    """The others gain a factor of three on the new accelerator, and this job twenty, as its probe says."""
    mine = job("mine", 0.02, 0.01)
    mine = replace(mine, step_s=np.where(mine.accelerator == "new", mine.step_s * 3 / 20, mine.step_s))
    probe = (mine.accelerator == "new") & (mine.gpus == 8) & (mine.nodes == 2) & (mine.batch == 16)
    known = (mine.alone & (mine.accelerator == "old")) | probe
    told = Scaling(OTHERS, Shape(2.0, 0.1)).predict(mine.take(known), mine.hidden())
    alone = mine.alone & (mine.accelerator == "new") & (mine.batch == 16)
    assert told[alone] <= mine.step_s[probe] * (1 + 1e-12)


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(ScenarioError, match="no other job was measured"):
        Scaling(OTHERS.take(~OTHERS.alone), Shape(2.0, 0.1))
    with pytest.raises(ScenarioError, match="two other jobs and a plan"):
        scaling.choose(job("a", 1, 1), job("a", 1, 1).job, [])


def test_columns_of_different_lengths_are_our_bug():
    mine = job("mine", 0.02, 0.5)
    with pytest.raises(InvariantError, match="different lengths"):
        Steps(mine.job, mine.accelerator, mine.nodes, mine.gpus, mine.most, mine.batch, mine.step_s[:1])
