from dataclasses import dataclass, fields

import pytest

from control.allocator import POLICIES, make
from twinbed import ScenarioError


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_is_made_from_its_defaults_and_knows_its_name(name):
    assert make(name, {}).name == name


@pytest.mark.parametrize("name", POLICIES)
def test_every_parameter_states_its_unit_and_the_reason_for_its_default(name):
    settings, _ = POLICIES[name]
    for spec in fields(settings):
        assert spec.metadata["unit"], spec.name
        assert spec.metadata["why"], spec.name


def test_the_policies_of_the_comparison_are_there():
    recommenders = {"vpa", "autopilot", "autothrottle", "firm", "k8s-cpu", "k8s-cpu-fast"}
    assert set(POLICIES) == {"escra", "static", "requests-only", "krr", "unlimited"} | recommenders


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("esca", {}, "no policy 'esca'; close: escra"),
        ("oracle", {}, "no policy 'oracle'; known: escra"),
        ("escra", {"upsilom": 1}, "policy 'escra' has no parameter 'upsilom'; close: upsilon"),
        ("static", {"zzz": 1}, "has no parameter 'zzz'; known: factor"),
        ("static", {"factor": "much"}, "static.factor: 'much' is not a number"),
        ("static", {"factor": True}, "static.factor: True is not a number"),
        ("static", {"factor": None}, "static.factor: None is not a number"),
        ("static", {"factor": "-1"}, "static.factor: -1.0"),
        ("escra", {"window": 5.5}, "escra.window: 5.5 is not a whole number"),
        ("escra", {"window": float("inf")}, "escra.window: inf is not a whole number"),
        ("escra", {"stale_mean_guard": "maybe"}, "escra.stale_mean_guard: 'maybe' is not a switch"),
        ("autopilot", {"recommender": 5}, "autopilot.recommender: 5 is not a text"),
        ("autopilot", {"recommender": "oracle"}, "recommender: 'oracle' is not one of ml, moving_window"),
        ("autopilot", {"cpu_statistic": "median"}, "autopilot.cpu_statistic"),
        ("autopilot", {"update_interval_s": 0.5}, "autopilot.update_interval_s: 0.5 s is shorter than"),
        ("autopilot", {"decays": (0.1, 2.0)}, "autopilot.decays: 2.0"),
        ("autopilot", {"decays": "0.1/x"}, "autopilot.decays: 'x' is not a number"),
        ("autopilot", {"margins": ()}, "autopilot.margins: the ensemble needs at least one"),
        ("autothrottle", {"target_busy": 1.5}, "autothrottle.target_busy"),
        ("autothrottle", {"window": 0}, "autothrottle.window"),
        ("autothrottle", {"beta_min": 0.95}, "autothrottle.beta_min: 0.95 is above beta_max, 0.9"),
        ("autothrottle", {"slo_p99_s": -1.0}, "autothrottle.slo_p99_s"),
        ("escra", {"upsilon": 101.0}, "escra.upsilon"),
        ("escra", {"kappa": -0.1}, "escra.kappa"),
        ("escra", {"window": 0}, "escra.window"),
        ("escra", {"gamma": float("nan")}, "escra.gamma"),
        ("escra", {"grant_bytes": 5000}, "escra.grant_bytes"),
        ("firm", {"room_s": 1}, "firm.room_s: 1 s is shorter than window_s, 5 s"),
        ("firm", {"slo_p99_s": 0}, "firm.slo_p99_s"),
        (
            "k8s-cpu",
            {"window_s": 5, "interval_s": 6},
            "k8s-cpu.window_s: 5.0 s is shorter than interval_s",
        ),
        ("k8s-cpu-fast", {"window_s": 5, "interval_s": 6}, "k8s-cpu-fast.window_s: 5.0 s is shorter than"),
        ("krr", {"cpu_percentile": 0.0}, "krr.cpu_percentile"),
        ("requests-only", {"memory_factor": -1}, "requests-only.memory_factor"),
        (
            "vpa",
            {"controlled_values": "limits"},
            "vpa.controlled_values: 'limits' is not one of",
        ),
        ("vpa", {"target_percentile": 1.5}, "vpa.target_percentile"),
        ("vpa", {"update_mode": "auto"}, "vpa.update_mode: 'auto' is not one of"),
        ("vpa", {"evict_when": "never"}, "vpa.evict_when: 'never' is not one of"),
    ],
)
def test_what_is_wrong_is_named_with_what_comes_close(name, parameters, message):
    with pytest.raises(ScenarioError) as raised:
        make(name, parameters)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@dataclass(frozen=True)
class ToySettings:
    rate: float = 1.0
    count: int = 1
    switch: bool = True
    word: str = "a"
    several: tuple[float, ...] = (1.0,)


@pytest.fixture
def toy(monkeypatch):
    """A policy whose allocator is its settings, so that they can be looked at."""
    monkeypatch.setitem(POLICIES, "toy", (ToySettings, lambda settings: settings))
    return lambda **parameters: make("toy", parameters)


def test_text_means_the_parameters_own_type(toy):
    made = toy(rate="35", count="7", switch="off", word="b", several="0.1/2")
    assert made == ToySettings(35.0, 7, False, "b", (0.1, 2.0))
    assert [type(made.rate), type(made.count), type(made.several[1])] == [float, int, float]


def test_numbers_become_the_parameters_own_type(toy):
    made = toy(rate=35, count=8192.0)
    assert made == ToySettings(rate=35.0, count=8192)
    assert [type(made.rate), type(made.count)] == [float, int]


@pytest.mark.parametrize("value", ["0.1/0.2", [0.1, "0.2"], (0.1, 0.2)])
def test_a_parameter_with_several_values_takes_a_list_or_text(toy, value):
    assert toy(several=value).several == (0.1, 0.2)


def test_one_value_stands_for_a_list_of_one(toy):
    assert toy(several=2).several == (2.0,)
