"""Explanations of predictors whose law is known, so that each group's part can be worked out."""

from dataclasses import replace

import numpy as np
import pytest

from control.jobs import Objective
from control.predictor.baselines import Baseline, fit
from control.predictor.explanation import contributions, importance
from control.predictor.features import POINTS, SERIES, Encoder
from tests.made_up_jobs import examples

SLOPES = {
    "log workers": 0.3,
    "log price": -0.2,
    "log vCPUs": 0.1,
    "optimiser is SGD": 0.4,
    "optimiser is Adam": 0.2,
}
PRIOR, PRICE = 2.0, 0.7
KNOWN = {"job-0": -5.0, "job-1": 0.0, "job-2": 1.0}
MEMORY = np.linspace(0.0, 0.1, POINTS)


class Lawful:
    """log value = slopes · columns + 2 prior + 0.7 log price + what the name and a series add."""

    def __init__(self, rows):
        self.rows, self.encoder = rows, Encoder.fit(rows)
        self.slopes = np.array([SLOPES.get(name, 0.0) for name in self.encoder.columns])

    def parts(self, encoded):
        """The parts of groups in the log value, by row."""
        static = encoded.static * self.slopes
        columns = {name: static[:, places].sum(axis=1) for name, places in self.encoder.groups_of().items()}
        columns["price"] = columns["price"] + PRICE * encoded.log_price
        memory = encoded.series[:, :, SERIES["master's memory"][0]] @ MEMORY
        names = np.array(encoded.names)[encoded.job]
        return {
            **columns,
            **{name: np.zeros(len(encoded.job)) for name in SERIES},
            "master's memory": memory[encoded.job],
            "analytic model": PRIOR * encoded.prior,
            "known application": np.array([KNOWN[name] for name in names]),
        }

    def predict_encoded(self, encoded):
        return np.exp(sum(self.parts(encoded).values()))


def law(rows):
    optimisers = ("", "SGD", "Adam")
    jobs = [
        replace(job, local_run=replace(job.local_run, optimiser=optimiser))
        for job, optimiser in zip(rows.jobs, optimisers, strict=False)
    ]
    model = Lawful(replace(rows, jobs=tuple(jobs)))
    return model, model.rows, model.parts(model.encoder.encode(model.rows))


def test_against_one_row_a_group_contributes_the_difference_of_its_parts():
    model, rows, parts = law(examples(2))
    at, against = 30, 5
    one, other = rows.take(np.array([at])), rows.take(np.array([against]))
    result = contributions(model, one, other, np.random.default_rng(0))
    expected = {name: values[at] - values[against] for name, values in parts.items()}
    assert set(result.group) == set(expected)
    for name, value in zip(result.group, result.log_factor, strict=True):
        assert value == pytest.approx(expected[name], abs=1e-9), name
    assert expected["known application"] == 5.0
    assert (np.diff(np.abs(result.log_factor)) <= 0).all()
    assert result.base == pytest.approx(sum(values[against] for values in parts.values()))
    nothing = [name for name, value in zip(result.group, result.log_factor, strict=True) if value == 0.0]
    assert nothing == [name for name in parts if name in nothing]  # ties keep the groups' order


def test_against_many_rows_contributions_are_about_those_against_their_mean():
    model, rows, parts = law(examples(3))
    result = contributions(model, rows.take(np.array([30])), rows, np.random.default_rng(0))
    value = sum(parts.values())
    # 64 rows are drawn: four standard errors are half a deviation.
    assert abs(result.base - value.mean()) < value.std() / 2
    assert result.base + result.log_factor.sum() == pytest.approx(value[30])
    for name, part in zip(result.group, result.log_factor, strict=True):
        assert abs(part - (parts[name][30] - parts[name].mean())) <= parts[name].std() / 2 + 1e-9, name


def test_two_groups_that_act_together_share_their_part():
    rows = examples(1).take(np.array([0, 23]))  # 0.2 and 12.8 $/h
    rows.prior_time_s[:] = [1.0, np.exp(5.0)]

    class Both:
        encoder = Encoder.fit(rows)

        def predict_encoded(self, encoded):
            return np.exp((encoded.prior > 4.0) * (encoded.log_price > 0.0) * 8.0)

    one, other = rows.take(np.array([1])), rows.take(np.array([0]))
    result = contributions(Both(), one, other, np.random.default_rng(0))
    parts = dict(zip(result.group, result.log_factor, strict=True))
    assert parts["analytic model"] + parts["price"] == pytest.approx(8.0)
    assert 2.0 < parts["price"] < 6.0  # 4 in the mean of 64 orders, whose standard error is 0.5


@pytest.mark.parametrize("by", list(Objective))
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_group_matters_if_the_prediction_depends_on_it(by, factor):
    model, rows, parts = law(examples(3))
    outcome = np.exp(sum(parts.values())) * factor
    result = importance(
        model,
        by,
        replace(rows, **{"cost_usd" if by is Objective.COST else "time_s": outcome}),
        np.random.default_rng(0),
    )
    acts = {name for name, values in parts.items() if np.ptp(values) > 1e-9}
    assert acts == {
        "workers", "price", "vCPUs", "optimiser", "analytic model", "master's memory", "known application",
    }  # fmt: skip
    losses = dict(zip(result.group, result.loss.tolist(), strict=True))
    assert set(losses) == set(parts)
    assert all(losses[name] == 0.0 for name in set(parts) - acts)
    if factor == 1.0:  # else a shuffle may also lessen an error
        assert all(losses[name] > 0.0 for name in acts)
    assert (np.diff(result.loss) <= 0).all()


def test_a_group_is_shuffled_five_times():
    rows = examples(1).take(np.array([0, 23]))
    rows.prior_time_s[:] = [1.0, np.exp(4.0)]
    rows.time_s[:] = rows.prior_time_s

    class Prior:
        encoder = Encoder.fit(rows)

        def predict_encoded(self, encoded):
            return np.exp(encoded.prior)

    losses = []
    for seed in range(8):
        result = importance(Prior(), Objective.TIME, rows, np.random.default_rng(seed))
        losses.append(dict(zip(result.group, result.loss, strict=True))["analytic model"])
    # A shuffle of two rows errs by 4 or by nothing.
    fifths = np.array(losses) / 4 * 5
    np.testing.assert_allclose(fifths, np.round(fifths), atol=1e-9)
    assert 0 < np.mean(losses) < 4
    assert len(set(np.round(fifths))) > 2


def test_the_importance_of_a_baseline_that_predicts_negative_times_is_a_number():
    rows = examples(3)
    linear = fit(Baseline.LINEAR, Objective.TIME, rows, 0)
    assert (linear.predict(rows) < 0).any()
    assert np.isfinite(importance(linear, Objective.TIME, rows, np.random.default_rng(0)).loss).all()
