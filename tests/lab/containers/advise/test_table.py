"""The table of an advice: its totals are those of what one would do."""

import pytest

from lab.containers.advise.table import money, result
from tests.lab.containers.advise.histories import advice, outcome, row


def test_rows_to_leave_cost_what_they_cost_now():
    paid = {"before": outcome(money_per_day=4.0), "after": outcome(money_per_day=1.0)}
    made = advice(row("a", **paid), row("b", verdict="leave", **paid), row("c", verdict="care", **paid))
    assert money(made) == "12 → 6 USD"


def test_money_that_is_unknown_now_is_said():
    made = advice(row("a"), row("b", verdict="leave"), row("c", before=outcome(money_per_day=4.0)))
    assert money(made) == "2 USD (what is reserved now is known of 1 of 3 rows)"


@pytest.mark.parametrize(
    ("length_s", "said"), [(86_400.0, "1 day,"), (172_800.0, "2 days,"), (90.0, "1.5 minutes,")]
)
def test_the_length_of_the_history_is_a_count_and_its_unit(length_s, said):
    made = advice(row())
    lasted = made.made.model_copy(update={"duration_s": length_s})
    assert result(made.model_copy(update={"made": lasted})).facts["History"].startswith(said)
