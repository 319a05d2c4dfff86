"""A selection survives its way through an address; what cannot be used is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.containers.input.sections import Price
from lab.containers.input.services.arrivals import PRESETS
from lab.explorer.selection import MAX_POLICIES, Choices, ServiceChoices, TraceChoices, from_query, to_query

_NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
_POLICIES = ["escra", "vpa", "static", "static:factor=2", "autopilot:update_interval_s=1"]
_COMMON = {
    "policies": st.lists(st.sampled_from(_POLICIES), min_size=1, unique=True).map(tuple),
    "budget": st.floats(0.1, 100),
    "seed": st.integers(0, 2**31),
    "cpu_price": st.floats(0, 10),
    "memory_price": st.floats(0, 10),
    "container": _NAMES,
    "runs": st.lists(_NAMES.filter(bool), max_size=6, unique=True).map(tuple),
}
_SELECTIONS = st.builds(TraceChoices, recording=_NAMES, **_COMMON) | st.builds(
    ServiceChoices,
    app=_NAMES,
    arrivals=st.sampled_from(PRESETS),
    percentile=st.sampled_from(["p50", "p90", "p99"]),
    scale=st.floats(0.01, 20),
    duration_s=st.floats(1, 3600),
    **_COMMON,
)


def as_received(selection: Choices) -> dict[str, list[str]]:
    query = to_query(selection)
    return {key: value if isinstance(value, list) else [value] for key, value in query.items()}


@given(_SELECTIONS)
def test_a_selection_comes_back_from_its_address_as_it_was(selection):
    assert from_query(type(selection), as_received(selection)) == (selection, [])


@pytest.mark.parametrize("kind", [TraceChoices, ServiceChoices])
def test_the_defaults_need_no_address(kind):
    assert to_query(kind()) == {}
    assert from_query(kind, {}) == (kind(), [])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("budget", "much"),
        ("budget", "0"),
        ("seed", "1.5"),
        ("cpu_price", "-1"),
        ("seed", "nan"),
        ("scale", "0"),
        ("scale", "inf"),
        ("duration_s", "1e9"),
    ],
)
def test_a_number_that_cannot_be_used_is_left_at_its_default_and_named(key, value):
    selection, problems = from_query(ServiceChoices, {key: [value]})
    assert selection == ServiceChoices()
    assert len(problems) == 1
    assert f"{key}={value}" in problems[0]


def test_a_policy_that_does_not_exist_is_named_and_the_others_are_kept():
    selection, problems = from_query(TraceChoices, {"policies": ["escra", "escrow", "static:factor=0"]})
    assert selection.policies == ("escra",)
    assert "escrow" in problems[0]
    assert "factor" in problems[1]


def test_an_address_cannot_ask_for_more_policies_than_can_be_told_apart():
    texts = [f"static:factor={1 + i / 10}" for i in range(20)]
    assert len(from_query(TraceChoices, {"policies": texts})[0].policies) == MAX_POLICIES


def test_only_what_differs_from_the_defaults_is_overridden():
    assert Choices().overrides() == []
    assert Choices(budget=2.0).overrides() == ["budget_factor=2.0"]
    price = Choices(cpu_price=1.0).overrides()
    assert price[0] == "price.cpu_core_hour=1.0"
    assert price[1] == f"price.memory_gib_hour={Price().memory_gib_hour}"
    assert "explorer" in price[2]
