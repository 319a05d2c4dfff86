import csv
from itertools import groupby

import numpy as np
import pytest

from twin.fabric.alpha_beta import AlphaBeta, fit, predict
from twin.fabric.collectives import Collective
from twinbed import TraceError

SIZES = 2.0 ** np.arange(3, 33)


def test_what_made_the_times_is_found_again():
    made = (AlphaBeta(2e-6, 40e9), AlphaBeta(20e-6, 400e9))
    times = predict(Collective.ALL_REDUCE, SIZES, 16, made)
    found = fit(Collective.ALL_REDUCE, SIZES, 16, times, protocols=2)
    assert [each.alpha_s for each in found] == pytest.approx([2e-6, 20e-6])
    assert [each.rate_bps for each in found] == pytest.approx([40e9, 400e9])


def test_times_that_size_does_not_change_are_all_latency():
    found = fit(Collective.SEND_RECV, [1, 2, 4], 2, [3e-6, 3e-6, 3e-6])
    assert found[0].alpha_s == pytest.approx(3e-6)
    assert predict(Collective.SEND_RECV, 8, 2, found) == pytest.approx(3e-6)


@pytest.mark.parametrize("times", [[1.0], [1.0, 0.0], [1.0, np.nan]])
def test_too_little_to_fit_is_refused(times):
    with pytest.raises(TraceError, match="times above zero"):
        fit(Collective.ALL_REDUCE, np.arange(1, len(times) + 1), 4, times)


@pytest.fixture(scope="module")
def measured(public_data):
    """{(system, operation, GPUs): (sizes, seconds)}, sizes ascending."""
    with (public_data("nccl_measured") / "nccl_tests_measured.csv").open() as file:
        rows = list(csv.DictReader(file))

    def machine(row):
        return row["system"], row["operation"], int(row["num_gpus"])

    result = {}
    for key, group in groupby(sorted(rows, key=lambda row: (machine(row), int(row["size_bytes"]))), machine):
        result[key] = np.array([(int(row["size_bytes"]), float(row["time_us"]) * 1e-6) for row in group]).T
    return result


def test_every_other_size_predicts_those_between(measured):
    """NCCL's three protocols from half the sizes; the other half within 3.5 % (median) and 20 % (all)."""
    wide = {key: times for key, times in measured.items() if len(times[0]) > 20}
    assert len(wide) == 3
    for (_, operation, gpus), (sizes, seconds) in wide.items():
        found = fit(Collective(operation), sizes[::2], gpus, seconds[::2], protocols=3)
        errors = np.abs(predict(Collective(operation), sizes[1::2], gpus, found) / seconds[1::2] - 1)
        assert np.median(errors) < 0.035
        assert errors.max() < 0.2


def test_large_messages_need_one_protocol(measured):
    for (_, operation, gpus), (sizes, seconds) in measured.items():
        large = sizes >= 1 << 29
        sizes, seconds = sizes[large], seconds[large]
        if len(sizes) < 4:
            continue
        found = fit(Collective(operation), sizes[::2], gpus, seconds[::2])
        errors = np.abs(predict(Collective(operation), sizes[1::2], gpus, found) / seconds[1::2] - 1)
        assert errors.max() < 0.05


def test_more_ranks_are_predicted_as_long_as_they_are_connected_alike(measured):
    """From one rack to two within 15 %; to twenty, whose fabric between racks is another, only within 2×."""
    times = {gpus: values for (name, _, gpus), values in measured.items() if name.startswith("GB200")}
    found = fit(Collective.ALL_REDUCE, times[72][0], 72, times[72][1])
    error = {
        gpus: np.abs(predict(Collective.ALL_REDUCE, times[gpus][0], gpus, found) / times[gpus][1] - 1).max()
        for gpus in (144, 1440)
    }
    assert error[144] < 0.15
    assert 0.3 < error[1440] < 1.0
