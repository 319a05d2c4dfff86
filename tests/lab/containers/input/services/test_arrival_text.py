"""Arrivals as text: presets, kinds, files, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from lab.ask.problems import describe
from lab.ask.section import Section
from lab.containers.input.services import arrivals
from lab.containers.input.services.arrivals import PRESETS, ArrivalSpec, Fixed, generate
from twinbed import ScenarioError


class Holder(Section):
    arrivals: ArrivalSpec = Fixed(kind="fixed")


def spec(written) -> ArrivalSpec:
    return Holder.model_validate({"arrivals": written}).arrivals


def drawn(written, duration_s=100.0, seed=1, weights=(1.0,)):
    return generate(spec(written), duration_s, weights, np.random.SeedSequence(seed))


@pytest.mark.parametrize(
    ("preset", "mean_rps", "slack"),
    [
        ("fixed", 400.0, 0.001),
        ("exponential", 300.0, 0.02),
        ("burst", 350.0, 0.02),
        ("alibaba_like", 302.0, 0.1),
    ],
)
def test_a_bare_name_is_a_workload_of_the_source(preset, mean_rps, slack):
    made = drawn(preset, 2000.0)
    assert len(made.at_s) / 2000.0 == pytest.approx(mean_rps, rel=slack)
    assert spec(preset) == spec({"kind": preset})


def test_alibaba_like_rates_stay_within_the_sources_range():
    made = drawn("alibaba_like", 2000.0)
    per_second = np.bincount(made.at_s.astype(int), minlength=2000)
    assert 30 <= per_second.min() < 100
    assert 500 < per_second.max() <= 650


@pytest.mark.parametrize("preset", PRESETS)
def test_the_same_seed_gives_the_same_to_the_bit_and_leaves_the_seed_as_it_was(preset):
    seed = np.random.SeedSequence(7, spawn_key=(3,))
    one, two = (generate(spec(preset), 50.0, [1.0, 2.0], seed) for _ in range(2))
    assert np.array_equal(one.at_s, two.at_s)
    assert np.array_equal(one.kind, two.kind)
    assert seed.n_children_spawned == 0
    if preset != "fixed":
        other = generate(spec(preset), 50.0, [1.0, 2.0], np.random.SeedSequence(7, spawn_key=(4,)))
        assert not np.array_equal(one.at_s, other.at_s)


def test_times_do_not_depend_on_what_is_asked_for():
    assert np.array_equal(drawn("burst").at_s, drawn("burst", weights=(1.0, 5.0, 3.0)).at_s)


@pytest.mark.parametrize("preset", PRESETS)
def test_scale_multiplies_every_rate_and_zero_leaves_nothing(preset):
    assert len(drawn({"kind": preset, "scale": 0.25}, 1000.0).at_s) == pytest.approx(
        len(drawn(preset, 1000.0).at_s) / 4, rel=0.02
    )
    nothing = drawn({"kind": preset, "scale": 0})
    assert (nothing.at_s.shape, nothing.kind.shape) == ((0,), (0,))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "fxied",
            "arrivals: no arrivals are called 'fxied'; give one of fixed, exponential, burst, alibaba_like",
        ),
        ({"rate_rps": 1}, "arrivals: kind: missing"),
        ({"kind": "fixed", "rate_rps": -1}, "arrivals.rate_rps: Input should be greater than or equal to 0"),
        ({"kind": "fixed", "rate_rps": float("nan")}, "arrivals.rate_rps: Input should be a finite number"),
        ({"kind": "fixed", "scale": -1}, "arrivals.scale: Input should be greater than or equal to 0"),
        ({"kind": "burst", "lenght_s": 1}, "arrivals.lenght_s: unknown key; did you mean 'length_s'?"),
        ({"kind": "burst", "length_s": 21}, "arrivals: length_s is 21, longer than every_s, 20"),
        ({"kind": "burst", "every_s": 0}, "arrivals.every_s: Input should be greater than 0"),
        ({"kind": "alibaba_like", "low_rps": 600}, "arrivals: low_rps is 600, above high_rps, 548"),
        ({"kind": "rates"}, "arrivals.file: missing"),
        ({"kind": "rates", "file": "x.csv", "speed": 0}, "arrivals.speed: Input should be greater than 0"),
        ({"kind": "poisson"}, "arrivals: Input tag 'poisson' found using 'kind' does not match any"),
    ],
)
def test_wrong_arrivals_are_refused_with_their_key(written, said):
    with pytest.raises(ValidationError) as caught:
        spec(written)
    assert describe(caught.value, Holder, "mine").startswith(f"mine: {said}")


def test_more_requests_than_a_run_may_have_are_refused_before_they_are_drawn():
    with pytest.raises(ScenarioError, match="lower the rate or shorten the run"):
        drawn({"kind": "exponential", "rate_rps": 1e6}, 3600.0)


@pytest.fixture
def rates_file(tmp_path):
    path = tmp_path / "load.csv"
    path.write_text("t_s,rps\n" + "".join(f"{at},{100 * (at % 2)}\n" for at in range(60)))
    return str(path)


def test_rates_of_a_file_are_played_at_their_times(rates_file):
    made = drawn({"kind": "rates", "file": rates_file}, 60.0)
    assert (made.at_s.astype(int) % 2 == 1).all()
    assert len(made.at_s) == pytest.approx(3000, abs=5 * np.sqrt(3000))
    even = drawn({"kind": "rates", "file": rates_file, "spacing": "even", "scale": 0.1}, 60.0)
    assert len(even.at_s) == 300


def test_a_file_is_played_from_a_time_on_and_faster_at_the_same_rates(rates_file):
    late = drawn({"kind": "rates", "file": rates_file, "start_s": 10.5, "spacing": "even"}, 10.0)
    # Half a second of the quiet second 10 is left, then 11 is busy.
    assert late.at_s.min() == pytest.approx(0.5)
    assert len(late.at_s) == 500
    fast = drawn({"kind": "rates", "file": rates_file, "speed": 6, "spacing": "even"}, 10.0)
    assert len(fast.at_s) == 500
    assert fast.at_s.max() < 10.0


def test_a_file_as_long_as_the_run_will_do_and_a_shorter_one_is_refused(rates_file):
    assert len(drawn({"kind": "rates", "file": rates_file, "speed": 3}, 20.0).at_s) > 0
    with pytest.raises(
        ScenarioError, match=r"lasts 60 s; from 5 s at speed 2 it covers 27.5 s of the run's 30 s"
    ):
        drawn({"kind": "rates", "file": rates_file, "start_s": 5, "speed": 2}, 30.0)


def test_time_stamps_of_a_file_are_the_arrivals_counted_from_the_first(tmp_path):
    path = tmp_path / "access.csv"
    path.write_text("timestamp\n100\n101\n101\n104\n110\n")
    written = {"kind": "timestamps", "file": str(path)}
    assert drawn(written, 10.0).at_s.tolist() == [0, 1, 1, 4]
    assert drawn(written | {"start_s": 1, "speed": 2}, 4.0).at_s.tolist() == [0, 0, 1.5]
    with pytest.raises(ScenarioError, match="lasts 10 s"):
        drawn(written, 11.0)


def test_the_public_data_can_be_played(public_data):
    folder = public_data("autothrottle_rps_1s")
    made = drawn({"kind": "rates", "file": str(folder / "bursty.csv")}, 3600.0)
    assert len(made.at_s) / 3600 == pytest.approx(163.27, rel=0.01)
    azure = public_data("azure_llm_inference_2023") / "azure_llm_conv.csv.gz"
    assert len(drawn({"kind": "timestamps", "file": str(azure)}, 3501.0).at_s) > 19_000


def test_the_limit_counts_requests_not_rates(monkeypatch):
    monkeypatch.setattr(arrivals, "MAX_ARRIVALS", 1000)
    assert len(drawn({"kind": "fixed", "rate_rps": 100}, 10.0).at_s) == 1000
    with pytest.raises(ScenarioError):
        drawn({"kind": "fixed", "rate_rps": 100}, 11.0)
