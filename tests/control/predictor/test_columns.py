"""The columns of rows and the series of local runs, each by its formula."""

from dataclasses import replace

import numpy as np
import pytest

from control.jobs import Job, LocalRun
from control.predictor.features import POINTS, SERIES, SERIES_COLUMNS, Encoder
from tests.made_up_jobs import examples

STEPS = np.array([0.1, 0.2, 0.6])
# Two intervals, a master and two workers: CPU, then bytes held, received and sent.
CPU = np.array([[1.0, 2.0, 4.0], [3.0, 2.0, 4.0]])
RUN = LocalRun(
    1.0, CPU, CPU * 10, CPU * 100, CPU * 1000, STEPS, 16, 5_000_000,
    ("Conv2d", "BatchNorm2d", "LSTM", "MultiheadAttention", "Linear", "Linear"),
)  # fmt: skip


def learned(*jobs):
    """Rows of these jobs on 24 clusters each, and on other batch sizes, disks, GPUs and servers."""
    rows = examples(len(jobs))
    count = len(rows)
    clusters = replace(
        rows.candidates,
        batch=np.where(np.arange(count) % 2, 64.0, np.nan),
        gpus=np.arange(count) % 3 * 1.0,
        disk_gib=10.0 + np.arange(count),
        cpu_speed=2.0 + np.arange(count),
        servers=np.arange(count) % 5,
        parameters={"learning rate": np.linspace(0.1, 0.2, count)},
    )
    return replace(rows, jobs=jobs, candidates=clusters)


def table(rows, encoder=None):
    """Every column by name as it was before it was standardised."""
    encoder = encoder or Encoder.fit(rows)
    values = encoder.encode(rows).static * encoder.scale + encoder.mean
    return dict(zip(encoder.columns, values.T, strict=True))


def series(rows):
    """The series as they were before they were standardised."""
    encoder = Encoder.fit(rows)
    return encoder.encode(rows).series * encoder.series_scale + encoder.series_mean


def test_columns_of_the_cluster_and_their_groups():
    rows = learned(Job("a", local_run=RUN, batch=32))
    on, cpu_us = rows.candidates, 5e6 / (1e6 * 0.2 * CPU.mean())
    batch, alone = np.where(np.arange(24) % 2, 64.0, 32.0), on.count == 1
    expected = {
        "log workers": ("workers", np.log(on.count)),
        "workers": ("workers", on.count),
        "servers": ("servers", on.servers),
        "log batch here": ("batch size", np.log(batch)),
        "log vCPUs": ("vCPUs", np.log(on.vcpus)),
        "log memory": ("memory", np.log(on.memory_gib)),
        "GPUs": ("GPUs", on.gpus),
        "log disk": ("disk", np.log(on.disk_gib)),
        "log network": ("network", np.log(on.network_bps)),
        "log CPU speed": ("CPU speed", np.log(on.cpu_speed)),
        "log price": ("price", np.log(on.price_usd_h)),
        "parameters × log batch": ("batch size", cpu_us * np.log(batch / 16)),
        "parameters alone": ("workers", cpu_us * alone),
        "log vCPUs alone": ("workers", np.log(on.vcpus) * alone),
        "learning rate": ("learning rate", on.parameters["learning rate"]),
        "is huge": ("instance type", on.name == "huge"),
    }
    encoder, columns = Encoder.fit(rows), table(rows)
    group_of = dict(zip(encoder.columns, encoder.groups, strict=True))
    for name, (group, values) in expected.items():
        np.testing.assert_allclose(columns[name], values, atol=1e-9, err_msg=name)
        assert group_of[name] == group


def test_columns_of_the_job_and_of_its_local_run_and_their_groups():
    job = Job("a", {"epochs": 3.0}, replace(RUN, optimiser="SGD"), 32, 0.5)
    other = Job("b", {"epochs": 5.0}, replace(RUN, layers=()), 64, 2.0)
    rows = learned(job, other)
    expected = {
        "log batch": ("batch size", np.log(32)),
        "log samples": ("samples", np.log(0.5)),
        "log parameters": ("parameters", np.log(5e6)),
        "layers": ("layers", 6),
        "log local step": ("local step time", np.log(0.2)),
        "log local batch": ("batch size", np.log(16)),
        "parameters per CPU time": ("parameters", 5e6 / (1e6 * 0.2 * CPU.mean())),
        "master: CPU": ("local CPU, master", 2.0),
        "workers: CPU": ("local CPU, workers", 3.0),
        "master: log memory": ("local memory, master", np.log(30)),
        "workers: log memory": ("local memory, workers", np.log(40)),
        # Bytes of all intervals by process and step.
        "master: log bytes in per step": ("local network, master", np.log(400 / 3)),
        "workers: log bytes in per step": ("local network, workers", np.log(1200 / 2 / 3)),
        "master: log bytes out per step": ("local network, master", np.log(4000 / 3)),
        "workers: log bytes out per step": ("local network, workers", np.log(12000 / 2 / 3)),
        "optimiser is SGD": ("optimiser", 1),
        "convolution layers": ("layers", 1),
        "recurrent layers": ("layers", 1),
        "attention layers": ("layers", 1),
        "norm layers": ("layers", 1),
        "linear layers": ("layers", 2),
        "pooling layers": ("layers", 0),
        "has local run": ("local run", 1),
        "epochs": ("epochs", 3),
    }
    encoder, columns = Encoder.fit(rows), table(rows)
    group_of = dict(zip(encoder.columns, encoder.groups, strict=True))
    for name, (group, value) in expected.items():
        assert columns[name][:24] == pytest.approx(value, abs=1e-9), name
        assert group_of[name] == group
    assert columns["optimiser is SGD"][24:] == pytest.approx(0, abs=1e-9)
    assert columns["layers"][24:] == pytest.approx(0, abs=1e-9)


def test_rows_are_described_by_what_they_hold_only():
    rows = learned(Job("a", {"epochs": 3.0}, RUN), Job("b", {"depth": 9.0}, replace(RUN, optimiser="Adam")))
    encoder = Encoder.fit(rows.take(rows.job == 0))
    assert encoder.features == ("epochs",)
    assert encoder.optimisers == ()  # that of a is not known
    both = Encoder.fit(rows)
    assert (both.features, both.optimisers) == (("depth", "epochs"), ("Adam",))
    assert both.instances == ("huge", "large", "middle", "small")


@pytest.mark.filterwarnings("error")
def test_unknown_values_are_the_mean_of_the_known_ones():
    rows = learned(Job("a", {"epochs": 3.0, "depth": 8.0}, RUN, 32, 1e5), Job("b", {"epochs": 5.0}))
    rows = rows.take(np.array([0, 24, 25]))  # one row of a, two of b
    encoder, columns = Encoder.fit(rows), table(rows)
    assert columns["epochs"] == pytest.approx([3, 5, 5])
    assert columns["depth"] == pytest.approx([8, 8, 8])
    assert columns["has local run"] == pytest.approx([1, 0, 0])
    for name in ("log samples", "log batch", "log local batch", "layers", "linear layers", "workers: CPU"):
        assert columns[name][1:] == pytest.approx(columns[name][0], rel=1e-12), name
    assert columns["log samples"][0] == pytest.approx(np.log(1e5))
    assert np.isfinite(encoder.mean).all()
    place = encoder.columns.index("epochs")
    assert encoder.mean[place] == pytest.approx(13 / 3)
    assert encoder.scale[place] == pytest.approx(np.std([3, 5, 5]))
    place = encoder.columns.index("log non-trainable")  # not known of any
    assert (encoder.mean[place], encoder.scale[place]) == (0.0, 1.0)


@pytest.mark.filterwarnings("error")
def test_a_free_cluster_without_a_disk_has_an_unknown_price_and_disk():
    rows = learned(Job("a", local_run=RUN, batch=32))
    for quantity in ("price_usd_h", "disk_gib"):
        getattr(rows.candidates, quantity)[3] = 0.0
    rows.prior_time_s[3] = 0.0
    encoded = Encoder.fit(rows).encode(rows)
    assert encoded.prior[3] == encoded.log_price[3] == -np.inf
    for name in ("log price", "log disk"):
        values = table(rows)[name]
        assert values[3] == pytest.approx(np.delete(values, 3).mean()), name


@pytest.mark.filterwarnings("error")
def test_a_run_that_used_no_cpu_has_no_parameters_per_cpu_time():
    idle = replace(RUN, cpu_cores=np.zeros_like(CPU))
    columns = table(learned(Job("a", local_run=RUN, batch=32), Job("b", local_run=idle, batch=32)))
    for name in ("parameters per CPU time", "parameters alone"):
        mean = columns[name][:24].mean()
        assert columns[name][24:] == pytest.approx(mean), name


def test_what_is_the_same_in_all_rows_is_not_scaled():
    encoder = Encoder.fit(learned(Job("a", {"epochs": 3.0}, RUN)))
    constant = LocalRun(1.0, *(np.ones((2, 1)) for _ in range(4)), STEPS, 16, 5_000_000)
    encoder_of_constant = Encoder.fit(learned(Job("a", local_run=constant)))
    asked = learned(Job("b", {"epochs": 7.0}, replace(constant, cpu_cores=np.full((2, 1), 3.0))))
    place = encoder.columns.index("epochs")
    assert encoder.encode(asked).static[:, place] == pytest.approx(4.0)
    assert encoder_of_constant.encode(asked).series[0, :, 0] == pytest.approx(2.0)


def test_series_are_cores_and_logarithms_of_bytes_by_role():
    use = np.array([[2.0, 1.0, 3.0]] * 2)  # the master's, and workers' with a mean of 2
    rows = learned(
        Job("a", local_run=LocalRun(1.0, use, use * 10, use * 100, use * 1000, STEPS, 1, 1)), Job("bare")
    )
    both = series(rows)
    expected = [2.0, *np.log1p([20, 200, 2000])] * 2
    np.testing.assert_allclose(both[0, :, :8], np.tile(expected, (POINTS, 1)))
    np.testing.assert_allclose(both[1], 0.0, atol=1e-9)


def test_a_run_of_one_process_leaves_the_workers_series_empty_and_the_layers_in_their_place():
    alone = LocalRun(1.0, *(np.full((4, 1), value) for value in (2.0, 20.0, 200.0, 2000.0)), STEPS, 1, 1)
    known = series(learned(Job("a", local_run=replace(alone, layers=("Linear", "Linear"))), Job("bare")))
    expected = np.zeros(SERIES_COLUMNS)
    expected[:4] = [2.0, *np.log1p([20, 200, 2000])]
    expected[SERIES["order of layers"][-1]] = 1.0
    np.testing.assert_allclose(known[0], np.tile(expected, (POINTS, 1)), atol=1e-9)


@pytest.mark.parametrize(
    ("intervals", "points"),
    [
        (40, np.arange(20) * 2 + 0.5),  # pairs
        (20, np.arange(20)),
        (10, np.repeat(np.arange(10), 2)),
        (30, np.ravel([(3 * part + 1 / 3, 3 * part + 5 / 3) for part in range(10)])),  # (0 + 1 / 2) / 1.5, …
    ],
)
def test_a_series_holds_the_means_over_equal_parts_of_the_run(intervals, points):
    ramp = np.arange(float(intervals))[:, None]
    run = LocalRun(1.0, ramp, ramp, ramp, ramp, STEPS, 16, 1)
    np.testing.assert_allclose(series(learned(Job("a", local_run=run)))[0, :, 0], points, atol=1e-9)
