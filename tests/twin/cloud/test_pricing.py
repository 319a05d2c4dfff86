from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twin.cloud import pricing
from twin.cloud.pricing import Rules
from twinbed import ScenarioError

VERTEX = Rules(
    increment_s=30, management_fee=0.15, disk_gib=100, disk_price_per_gib_month=0.17, disk_fee=0.15
)


def test_a_vertex_node_is_machine_and_disk_with_their_fees():
    # 0.189999 × 1.15 + 100 × 0.17 / 730 × 1.15 = 0.21850 + 0.02678
    assert pricing.node_usd_h(0.189999, VERTEX) == pytest.approx(0.24528, abs=1e-5)


def test_three_nodes_for_33_hours_cost_what_the_source_reports():
    """Seed figure C4: VGG-16 on 3 × n1-standard-4, about 33 h, $24.29."""
    cluster = 3 * pricing.node_usd_h(0.189999, VERTEX)
    assert pricing.cost_usd(33 * 3600, cluster, VERTEX) == pytest.approx(24.29, rel=0.005)


def test_a_type_without_a_price_has_no_cost():
    assert np.isnan(pricing.cost_usd(10, pricing.node_usd_h(np.nan, VERTEX), VERTEX))


@given(st.floats(0, 1e6, allow_subnormal=False), st.floats(0.1, 3600), st.floats(0, 600))
def test_billed_time_is_whole_steps_and_never_less_than_held(held: float, step: float, least: float):
    billed = float(pricing.billed_s(held, Rules(increment_s=step, minimum_s=least)))
    assert billed >= max(held, least) * (1 - 1e-9)
    assert billed <= max(held + step, least) * (1 + 1e-9)


def test_a_product_that_is_rounded_up_costs_no_further_step():
    assert 1800 * 1.1 > 1980
    assert pricing.billed_s(1800 * 1.1, Rules(increment_s=30)) == 1980


def test_start_up_is_paid_for_where_the_rules_say_so():
    assert pricing.billed_s(100, Rules(startup_s=50)) == 100
    assert pricing.billed_s(100, Rules(startup_s=50, startup_billed=True)) == 150


@pytest.mark.parametrize(
    ("rules", "message"), [({"increment_s": 0}, "increment_s is 0"), ({"disk_fee": -1}, "disk_fee is -1")]
)
def test_rules_that_cannot_be_are_refused(rules: dict[str, float], message: str):
    with pytest.raises(ScenarioError, match=message):
        Rules(**rules)  # type: ignore[arg-type]
