"""The table of an advice: its totals are those of what one would do."""

from lab.containers.advise.table import money
from tests.lab.containers.advise.histories import advice, outcome, row


def test_rows_to_leave_cost_what_they_cost_now():
    paid = {"before": outcome(money_per_day=4.0), "after": outcome(money_per_day=1.0)}
    made = advice(row("a", **paid), row("b", verdict="leave", **paid), row("c", verdict="care", **paid))
    assert money(made) == "12 → 6 USD"


def test_money_that_is_unknown_now_is_said():
    made = advice(row("a"), row("b", verdict="leave"), row("c", before=outcome(money_per_day=4.0)))
    assert money(made) == "2 USD (what is reserved now is known of 1 of 3 rows)"
