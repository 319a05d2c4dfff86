"""Figures that are read from a run's periods."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from studies.experiments.escra import LIMIT_BYTES, RECORD_BYTES, follows_s, peak_mbit_s
from studies.experiments.model import Case


def of_periods(frame, period_s=0.1):
    manifest = {"workload": {"period_s": period_s}}
    run = SimpleNamespace(frame=lambda name, columns: frame[columns], manifest=manifest)
    return Case({}, "escra", 0, run)


def test_the_limit_follows_when_it_fits_the_demand_at_a_period_s_end():
    demand = [1, 1, 2, 2, 2, 2, 1, 1, 1]
    quota = [1.2, 1.2, 1.2, 1.9, 2.0, 2.4, 2.4, 1.5, 1.2]
    case = of_periods(pd.DataFrame({"demand_cores": demand, "quota_cores": quota}))
    # Up at period 2: 2.0 >= 2 at the end of period 4, the third: 0.3 s. Down at 6: 1.2 <= 1.2 in period 8.
    assert follows_s(case, +1) == pytest.approx(0.3)
    assert follows_s(case, -1) == pytest.approx(0.3)


def test_a_limit_that_never_follows_takes_for_ever():
    case = of_periods(pd.DataFrame({"demand_cores": [1, 2, 2], "quota_cores": [1.0, 1.0, 1.0]}))
    assert follows_s(case, +1) == np.inf
    assert follows_s(case, -1) == 0.0


def test_network_is_that_of_the_busiest_second():
    # Two containers for two seconds of two periods; in the second second two limits change.
    frame = pd.DataFrame(
        {"period": np.repeat(np.arange(4), 2), "cpu_reason": [0, 0, 0, 0, 4, 0, 5, 0], "up": [True] * 8}
    )
    wanted = (4 * RECORD_BYTES + 2 * LIMIT_BYTES) * 8 / 1e6
    assert peak_mbit_s(of_periods(frame, period_s=0.5)) == pytest.approx(wanted)


def test_a_record_on_the_wire_is_24_bytes_and_its_headers():
    # 24 record + 8 UDP + 20 IPv4 + 14 Ethernet header + 4 checksum + 8 preamble + 12 gap.
    assert RECORD_BYTES == 90
