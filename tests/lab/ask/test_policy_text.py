import pytest

from lab.ask import policy
from twinbed import ScenarioError


def test_text_names_a_policy_and_its_parameters():
    spec = policy.parse("static:factor=0.75")
    assert (spec.name, spec.parameters) == ("static", (("factor", 0.75),))
    assert spec.text == "static:factor=0.75"


def test_parameters_are_in_canonical_order_so_that_equal_policies_are_equal():
    assert policy.parse("escra:window=5:kappa=0.5") == policy.parse("escra:kappa=0.5:window=5")


def test_resolved_writes_every_default_out():
    resolved = policy.parse("escra:kappa=0.5").resolved()
    assert resolved["kappa"] == 0.5
    assert len(resolved) > 3


def test_the_same_number_written_in_two_ways_is_the_same_policy():
    assert policy.parse("static:factor=1") == policy.parse("static:factor=1.0")


@pytest.mark.parametrize(
    "text", ["escra:stale_mean_guard=false", "static:factor=2", "static:factor=1e-01", "escra:window=5"]
)
def test_the_canonical_text_reads_back_to_the_same_policy(text):
    spec = policy.parse(text)
    assert policy.parse(spec.text) == spec
    assert policy.parse(spec.text).resolved() == spec.resolved()


@pytest.mark.parametrize("name", policy.names())
def test_every_policy_can_be_made_with_its_defaults(name):
    assert policy.parse(name).make().name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("esrca", "esrca"),
        ("static:facto=1", "facto"),
        ("static:factor", "KEY=VALUE"),
        ("static:factor=", "KEY=VALUE"),
        ("static:factor=1:factor=2", "twice"),
        ("static:factor=-1", "factor"),
        ("static:factor=wide", "factor"),
        ("", "polic"),
    ],
)
def test_a_wrong_text_is_refused_in_one_line_that_names_it(text, said):
    with pytest.raises(ScenarioError, match=said) as caught:
        policy.parse(text)
    assert "\n" not in str(caught.value)


def test_a_value_that_no_sum_could_hold_is_refused_by_name():
    with pytest.raises(ScenarioError, match=r"^policy autopilot: update_interval_s: 1e\+308 is too large"):
        policy.parse("autopilot:update_interval_s=1e308")
