"""The table of an advice: its totals are those of what one would do."""

import pytest

from lab.containers.advise.model import Setting
from lab.containers.advise.table import money, result
from tests.lab.containers.advise.histories import advice, outcome, row


def test_rows_to_leave_cost_what_they_cost_now():
    paid = {"before": outcome(money_per_day=4.0), "after": outcome(money_per_day=1.0)}
    made = advice(row("a", **paid), row("b", verdict="leave", **paid), row("c", verdict="care", **paid))
    assert money(made) == "12 → 6 USD"


def test_money_that_is_unknown_now_is_said():
    made = advice(row("a"), row("b", verdict="leave"), row("c", before=outcome(money_per_day=4.0)))
    assert money(made) == "2 USD (what is reserved now is known of 1 of 3 rows)"


def test_a_row_to_leave_shows_what_is_set_now():
    now = Setting(cpu_request_cores=2.0)
    paid = {
        "before": outcome(money_per_day=4.0, late_share=0.0),
        "after": outcome(money_per_day=1.0, late_share=1.0),
    }
    made = advice(
        row("a", verdict="leave", current=now, **paid), row("b", verdict="leave"), row("c", current=now)
    )
    known, unknown, taken = result(made).rows
    assert (known["cpu"], known["money_per_day"], known["late"]) == ("2 / –", "4", "0")
    assert (unknown["cpu"], unknown["memory"], unknown["money_per_day"]) == ("– / –", "– / –", "–")
    assert taken["cpu"] == "2 → 0.25 / none"


@pytest.mark.parametrize(
    ("length_s", "said"), [(86_400.0, "1 day,"), (172_800.0, "2 days,"), (90.0, "1.5 minutes,")]
)
def test_the_length_of_the_history_is_a_count_and_its_unit(length_s, said):
    made = advice(row())
    lasted = made.made.model_copy(update={"duration_s": length_s})
    assert result(made.model_copy(update={"made": lasted})).facts["History"].startswith(said)
