from dataclasses import replace

import numpy as np
import pytest

from control.jobs import Configuration, InstanceType, Job, Objective, candidates
from control.predictor.examples import best, folds_of_jobs, folds_of_rows, of_one_job
from control.predictor.features import POINTS, SCALING, SERIES, SERIES_COLUMNS, Encoder
from tests.made_up_jobs import PRICES, TYPES, examples
from twinbed import InvariantError, ScenarioError


def test_the_best_are_few_and_near_the_lowest():
    value = np.array([10.0, 11, 12, 14, 16, 17, 100, 110, 170])
    job = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1])
    # 16 is beyond 1.5 × 10; so is 170 beyond 150.
    assert best(value, job).tolist() == [True] * 4 + [False] * 2 + [True, True, False]
    assert best(np.ones(8), np.zeros(8, int)).all()
    assert best(np.linspace(1, 1.4, 9), np.zeros(9, int)).sum() == 5
    assert best(np.array([10.0, 15.0, 15.1]), np.zeros(3, int)).tolist() == [True, True, False]


def test_folds_hold_every_row_once():
    folds = folds_of_rows(23, 5, np.random.default_rng(0))
    assert np.array_equal(np.sort(np.concatenate(folds)), np.arange(23))
    assert [rows.tolist() for rows in folds_of_jobs(np.array([2, 7, 2]))] == [[0, 2], [1]]
    with pytest.raises(ScenarioError, match="at least two"):
        folds_of_jobs(np.zeros(3, int))
    assert [len(fold) for fold in folds_of_rows(5, 2, np.random.default_rng(0))] == [3, 2]
    assert sorted(map(len, folds_of_rows(5, 5, np.random.default_rng(0)))) == [1] * 5
    assert all((np.diff(fold) > 0).all() for fold in folds_of_rows(23, 5, np.random.default_rng(0)))
    first, other = (np.concatenate(folds_of_rows(23, 5, np.random.default_rng(seed))) for seed in (0, 1))
    assert not np.array_equal(first, other)
    for folds in (1, 6):
        with pytest.raises(ScenarioError, match=f"{folds} folds of 5 rows"):
            folds_of_rows(5, folds, np.random.default_rng(0))


def test_columns_are_standardised_by_the_rows_that_were_learned_from():
    rows = examples()
    encoder = Encoder.fit(rows)
    encoded = encoder.encode(rows)
    assert encoded.static.shape == (len(rows), len(encoder.columns))
    assert encoded.series.shape == (5, POINTS, SERIES_COLUMNS)
    assert np.abs(encoded.static.mean(axis=0)).max() < 1e-9
    spread = encoded.static.std(axis=0)
    assert set(np.round(spread, 9)) <= {0.0, 1.0}
    assert np.abs(encoded.series.mean(axis=(0, 1))).max() < 1e-9
    assert set(np.round(encoded.series.std(axis=(0, 1)), 9)) <= {0.0, 1.0}
    alone = encoder.encode(rows.take(np.array([3])))
    np.testing.assert_array_equal(alone.static[0], encoded.static[3])
    np.testing.assert_array_equal(encoded.log_price, np.log(rows.candidates.price_usd_h))
    np.testing.assert_array_equal(encoded.prior, np.log(rows.prior_time_s))
    assert column(rows, "log batch") == pytest.approx(np.log(32.0))
    assert np.exp(column(rows, "log samples")) == pytest.approx(1e5 * (1 + rows.job))


def with_runs(rows, **fields):
    """The same rows, whose jobs' local runs have other fields: one value for each job."""
    jobs = [
        replace(
            job, local_run=replace(job.local_run, **{name: values[place] for name, values in fields.items()})
        )
        for place, job in enumerate(rows.jobs)
    ]
    return replace(rows, jobs=tuple(jobs))


def column(rows, name):
    """A column as it was before it was standardised, by row."""
    encoder = Encoder.fit(rows)
    place = encoder.columns.index(name)
    return encoder.encode(rows).static[:, place] * encoder.scale[place] + encoder.mean[place]


def test_every_column_is_in_one_group_which_names_its_subject():
    encoder = Encoder.fit(examples(2))
    groups = encoder.groups_of()
    assert np.sort(np.concatenate(list(groups.values()))).tolist() == list(range(len(encoder.columns)))
    group_of = {encoder.columns[place]: name for name, places in groups.items() for place in places.tolist()}
    assert [group_of[f"log {name}"] for name in ("workers", "memory", "network", "disk", "price")] == [
        "workers", "memory", "network", "disk", "price",
    ]  # fmt: skip
    assert group_of["layers"] == group_of["convolution layers"] == "layers"
    assert group_of["log batch"] == group_of["log local batch"] == "batch size"


def test_optimiser_sizes_and_disk_are_columns():
    rows = with_runs(
        examples(2),
        optimiser=("Adam", "SGD"),
        non_trainable=(0.0, 9.0),
        input_size=(9.0, 99.0),
        output_size=(0.0, 9.0),
    )
    assert column(rows, "optimiser is SGD") == pytest.approx(rows.job)
    assert column(rows, "log non-trainable") == pytest.approx(np.log(10) * rows.job)
    assert column(rows, "log input size") == pytest.approx(np.log(10) * (1 + rows.job))
    assert column(rows, "log output size") == pytest.approx(np.log(10) * rows.job)
    disk_gib = np.where(rows.candidates.vcpus > 4, 100.0, 10.0)
    on_disks = replace(rows, candidates=replace(rows.candidates, disk_gib=disk_gib))
    assert np.exp(column(on_disks, "log disk")) == pytest.approx(disk_gib)


def test_master_and_workers_are_told_apart():
    rows = examples(2)
    cores = [np.tile([3.0 + place, 1.0, 2.0], (90, 1)) for place in range(2)]
    rows = with_runs(rows, cpu_cores=cores)
    assert column(rows, "master: CPU") == pytest.approx(3.0 + rows.job)
    assert column(rows, "workers: CPU") == pytest.approx(1.5)
    encoder = Encoder.fit(rows)
    series = encoder.encode(rows).series * encoder.series_scale + encoder.series_mean
    assert series[:, :, SERIES["master's CPU"][0]] == pytest.approx(np.repeat([[3.0], [4.0]], POINTS, axis=1))
    assert series[:, :, SERIES["workers' CPU"][0]] == pytest.approx(1.5)


def test_a_run_of_one_process_has_no_workers():
    rows = with_runs(
        examples(1),
        **{
            name: [np.ones((90, 1))]
            for name in ("cpu_cores", "memory_bytes", "net_in_bytes", "net_out_bytes")
        },
    )
    encoder = Encoder.fit(rows)
    encoded = encoder.encode(rows)
    assert np.isfinite(encoded.static).all()
    assert np.isfinite(encoded.series).all()


def test_the_order_of_the_layers_counts():
    forth = ("Conv2d",) * 10 + ("Linear",) * 10
    rows = with_runs(examples(2), layers=(forth, forth[::-1]))
    encoder = Encoder.fit(rows)
    series = encoder.encode(rows).series * encoder.series_scale + encoder.series_mean
    kinds = series[:, :, list(SERIES["order of layers"])]
    assert kinds[0, :10, 0] == pytest.approx(1.0)
    assert kinds[0, 10:, 0] == pytest.approx(0.0)
    assert kinds[1] == pytest.approx(kinds[0, ::-1])


def test_a_job_and_a_type_that_were_never_seen_can_be_asked_about():
    encoder = Encoder.fit(examples())
    types = {**TYPES, "new": InstanceType("new", "test", 64, 128)}
    asked = of_one_job(Job("bare"), candidates(types, {**PRICES, "new": 3.0}, [Configuration("new", 2)]))
    encoded = encoder.encode(asked)
    assert np.isfinite(encoded.static).all()
    one_hots = [index for index, name in enumerate(encoder.columns) if name.startswith("is ")]
    assert len(set(encoded.static[0, one_hots])) == 1  # each is "not this one"


@pytest.mark.parametrize(("by", "value"), [("time", np.nan), ("time", 0.0), ("cost", np.inf), ("cost", -1.0)])
def test_rows_without_an_outcome_are_refused(by, value):
    rows = examples()
    (rows.time_s if by == "time" else rows.cost_usd)[3] = value
    with pytest.raises(ScenarioError, match=rf"row 5 \(job job-0\): {by} is {value}"):
        rows.check_known(Objective(by))


def test_what_a_step_costs_per_parameter_is_told_by_batch_and_by_being_alone():
    rows = examples(3)
    encoder = Encoder.fit(rows)
    assert set(SCALING) <= set(encoder.columns)
    table = encoder.encode(rows).static * encoder.scale + encoder.mean
    column = {name: table[:, place] for place, name in enumerate(encoder.columns)}
    run = rows.jobs[1].local_run
    expected = run.parameters / (1e6 * np.median(run.step_s) * run.cpu_cores.mean())
    here = rows.job == 1
    np.testing.assert_allclose(column["parameters per CPU time"][here], expected)
    alone = rows.candidates.count == 1
    np.testing.assert_allclose(column["parameters alone"][here & alone], expected)
    np.testing.assert_allclose(column["parameters alone"][~alone], 0.0, atol=1e-12)
    np.testing.assert_allclose(column["parameters × log batch"], 0.0, atol=1e-12)  # the local run's own batch


@pytest.mark.parametrize("column", ["job", "time_s", "cost_usd", "prior_time_s"])
def test_a_column_of_another_length_is_refused(column):
    rows = examples(1)
    with pytest.raises(InvariantError, match="24 candidates and columns of other lengths"):
        replace(rows, **{column: getattr(rows, column)[1:]})


@pytest.mark.parametrize("place", [-1, 2])
def test_a_row_of_no_job_is_refused(place):
    rows = examples(2)
    rows.job[3] = place
    with pytest.raises(InvariantError, match="beyond the 2"):
        replace(rows)


def test_rows_to_learn_from_are_counted_and_their_outcomes_may_be_small():
    rows = examples(1)
    rows.cost_usd[:] = 0.01
    rows.check_known(Objective.COST)
    rows.take(np.array([0])).check_known(Objective.COST)
    rows.check_known(Objective.COST, 24)
    with pytest.raises(ScenarioError, match="24 rows to learn from; at least 25"):
        rows.check_known(Objective.COST, 25)


def test_rows_to_predict_have_no_outcomes_and_a_prior_where_it_is_given():
    rows = examples(1)
    asked = of_one_job(rows.jobs[0], rows.candidates)
    for unknown in (asked.time_s, asked.cost_usd, asked.prior_time_s):
        assert np.isnan(unknown).all()
    known = of_one_job(rows.jobs[0], rows.candidates, rows.prior_time_s)
    assert np.isnan(known.time_s).all()
    np.testing.assert_array_equal(known.prior_time_s, rows.prior_time_s)
    assert known.job.tolist() == [0] * 24


def test_parameters_of_candidates_are_known_by_name():
    rows = examples(2)
    rate, data = np.linspace(0.1, 0.9, len(rows)), np.linspace(5.0, 1.0, len(rows)) ** 2

    def given(**parameters: np.ndarray):
        return replace(rows, candidates=replace(rows.candidates, parameters=parameters))

    encoder = Encoder.fit(given(rate=rate, data=data))
    expected = encoder.encode(given(rate=rate, data=data)).static
    np.testing.assert_array_equal(encoder.encode(given(data=data, rate=rate)).static, expected)
    other = encoder.encode(given(rate=rate, colour=data)).static
    column = encoder.columns.index("data")
    np.testing.assert_array_equal(np.delete(other, column, axis=1), np.delete(expected, column, axis=1))
    assert (other[:, column] == 0).all()
