"""Properties of step times at scale: what physics forbids is never answered, whatever was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twin.cloud import steptime
from twin.cloud.configurations import Runs, joined, runs
from twin.cloud.steptime import CHANGES, CONSTANT, UNPROBED, StepTimes
from twinbed import ScenarioError

SIZES = {"small": 1.3e9, "middle": 6.7e9, "large": 13e9}


def job(
    model: str, gpu: str = "a100_80gb", micro: tuple[float, ...] = (4, 8, 8, 8), gpus=(8, 16, 32, 64)
) -> Runs:
    """Runs on more and more GPUs, 32,768 tokens each, without their times."""
    return runs(
        model=[model] * len(gpus),
        parameters=SIZES[model],
        sequence=2048,
        gpu_name=[gpu] * len(gpus),
        gpus=gpus,
        tokens_per_gpu=32768,
        micro_batch=micro,
        recompute=True,
    )


def measured(asked: Runs, factor: float = 1.0, noise: float = 0.01, seed: int = 0) -> Runs:
    """Return the same runs with times that follow the law with unusual constants."""
    law = steptime.log_step_s(steptime._USUAL + 0.2, np.zeros(len(asked)), asked)
    shaken = noise * np.random.default_rng(seed).standard_normal(len(asked))
    return replace(asked, step_s=factor * np.exp(law + shaken))


OTHERS = joined(
    *(
        measured(job(model, gpu), 1.3, seed=seed)
        for seed, (model, gpu) in enumerate(
            [("small", "a100_80gb"), ("large", "a100_80gb"), ("small", "h100_80gb"), ("large", "h100_80gb")]
        )
    )
)
MODEL = StepTimes(OTHERS)
MINE = measured(job("middle"), 1.35, seed=9)
factors = st.floats(1.2, 2.0)
widths = st.lists(st.integers(0, 7), min_size=2, max_size=6, unique=True).map(lambda x: 8.0 * 2 ** np.sort(x))
quick = settings(deadline=None, max_examples=30)


def asked(gpus, micro=8.0, accumulation=2.0, **changed) -> Runs:
    """Questions about the middle job, one for each number of GPUs."""
    count = np.size(gpus)
    one = job("middle", micro=(8,), gpus=(8,)).take([0] * count)
    full = {"gpus": gpus, "micro_batch": micro, "accumulation": accumulation, **changed}
    return replace(one, **{name: np.broadcast_to(value, count).astype(float) for name, value in full.items()})


def test_a_job_that_follows_the_law_is_told_from_two_narrow_probes():
    known = steptime.two_narrowest(MINE)
    answer = MODEL.answer(MINE.take(known), MINE.take(~known).hidden())
    assert answer.step_s == pytest.approx(MINE.step_s[~known], rel=0.03)
    assert list(answer.regime) == [CONSTANT, CONSTANT]
    assert (answer.low_s < answer.step_s).all()
    assert (answer.step_s < answer.high_s).all()


def test_a_probe_with_a_smaller_micro_batch_does_not_make_the_answer_slow():
    """A model that is short of memory on few GPUs is faster on more of them, each GPU too."""
    tight = measured(job("middle", micro=(1, 8, 8, 8)), 1.35, seed=9)
    answer = MODEL.answer(tight.take([0]), tight.take([1, 2]).hidden())
    assert list(answer.regime) == [CHANGES, CHANGES]
    assert answer.step_s[0] < tight.step_s[0]
    assert answer.step_s == pytest.approx(tight.step_s[1:3], rel=0.1)


@quick
@given(gpus=widths, factor=factors)
def test_per_gpu_speed_does_not_rise_with_width_at_a_fixed_configuration(gpus, factor: float):
    probes = measured(asked([8.0, 16.0]), factor, noise=0.0)
    for known in (probes, probes.take([]), measured(asked([16.0], 4.0, 4.0), factor)):
        step_s, _ = MODEL.step_s(known, asked(gpus))
        assert (step_s > 0).all()
        assert (np.diff(step_s) >= -1e-9 * step_s[1:]).all()


@quick
@given(gpus=widths, factor=st.floats(1.1, 3.0), micro=st.sampled_from([1.0, 4.0, 8.0]))
def test_nothing_is_faster_than_the_gpus_peak(gpus, factor: float, micro: float):
    question = asked(gpus, micro, 16 / micro)
    probe = asked([8.0], 8.0, 2.0)
    probe = replace(probe, step_s=factor * probe.least_s())
    step_s, _ = MODEL.step_s(probe, question)
    assert (step_s >= question.least_s()).all()
    assert (MODEL.step_s(probe.take([]), question)[0] >= question.least_s()).all()


@quick
@given(gpus=st.sampled_from([8.0, 32.0, 256.0]), factor=factors, probed=st.sampled_from([1.0, 2.0, 4.0, 8.0]))
def test_more_accumulation_of_the_same_tokens_is_never_faster_under_full_sharding(gpus, factor, probed):
    micro = np.array([8.0, 4.0, 2.0, 1.0])
    probe = measured(asked([8.0], probed, 16 / probed), factor)
    for known in (probe, probe.take([])):
        step_s, _ = MODEL.step_s(known, asked([gpus] * 4, micro, 16 / micro))
        assert (np.diff(step_s) >= -1e-9 * step_s[1:]).all()


@quick
@given(gpus=st.sampled_from([16.0, 64.0, 512.0]), faster=st.floats(1.0, 10.0), factor=factors)
def test_a_faster_link_is_never_slower(gpus: float, faster: float, factor: float):
    one = asked([gpus])
    other = replace(one, network_bytes_s=one.network_bytes_s * faster)
    probe = measured(asked([8.0]), factor)
    for known in (probe, probe.take([])):
        assert MODEL.step_s(known, other)[0] <= MODEL.step_s(known, one)[0] * (1 + 1e-12)


@settings(deadline=None, max_examples=5)
@given(scale=st.floats(0.9, 100.0))
def test_all_times_longer_are_told_longer(scale: float):
    longer = StepTimes(replace(OTHERS, step_s=OTHERS.step_s * scale))
    probes, question = MINE.take([0, 1]), MINE.take([2, 3]).hidden()
    scaled = longer.step_s(replace(probes, step_s=probes.step_s * scale), question)[0]
    assert scaled == pytest.approx(scale * MODEL.step_s(probes, question)[0], rel=1e-6)


@quick
@given(factor=factors, seed=st.integers(0, 99))
def test_every_probe_is_met_exactly(factor: float, seed: int):
    probes = measured(job("middle"), factor, noise=0.1, seed=seed)
    assert MODEL.step_s(probes, probes.hidden())[0] == pytest.approx(probes.step_s, rel=1e-9)


@quick
@given(slower=st.floats(0.8, 1.25))
def test_a_far_probe_of_another_configuration_changes_less_than_the_interval(slower: float):
    near, question = MINE.take([1]), MINE.take([3]).hidden()
    far = measured(asked([8.0], 1.0, 16.0), 1.35 * slower)
    without, both = MODEL.answer(near, question), MODEL.answer(joined(near, far), question)
    assert without.low_s < both.step_s < without.high_s


def test_what_is_outside_or_without_a_probe_is_flagged_and_wider():
    inside = MODEL.answer(MINE.take([0, 1]), MINE.take([2]).hidden())
    assert not inside.extrapolated.any()
    for answer in (
        MODEL.answer(MINE.take([]), MINE.take([2]).hidden()),
        MODEL.answer(MINE.take([0, 1]), asked([512.0])),
        MODEL.answer(MINE.take([0, 1]), asked([32.0], 16.0, 1.0)),
    ):
        assert answer.extrapolated.all()
        assert list(answer.regime) == [UNPROBED]
        assert answer.high_s / answer.step_s > inside.high_s / inside.step_s


def test_without_other_runs_the_answer_is_a_factor_of_two_wide():
    nothing = MINE.take([])
    for probes in (nothing, MINE.take([0, 1])):
        answer = StepTimes(nothing).answer(probes, MINE.take([2]).hidden())
        assert answer.high_s / answer.step_s == pytest.approx(2.0)
        assert 0.3 < answer.step_s[0] / MINE.step_s[2] < 3


def test_a_run_far_off_moves_the_law_little():
    step_s = OTHERS.step_s.copy()
    step_s[1] *= 3
    moved = StepTimes(replace(OTHERS, step_s=step_s)).step_s(MINE.take([]), MINE.hidden())[0]
    assert moved == pytest.approx(MODEL.step_s(MINE.take([]), MINE.hidden())[0], rel=0.15)


def test_probes_are_the_two_narrowest_and_the_narrower_of_two():
    assert list(steptime.two_narrowest(MINE)) == [True, True, False, False]
    assert list(steptime.two_narrowest(MINE.take([1, 3]))) == [True, False]
    assert not steptime.two_narrowest(MINE.take([1])).any()


def test_a_probe_faster_than_the_peak_is_refused_by_its_row():
    with pytest.raises(ScenarioError, match="row 2: this step is faster than the GPU's peak"):
        runs(
            parameters=1e9,
            sequence=2048,
            gpu_name=["a100_80gb"] * 2,
            gpus=8,
            tokens_per_gpu=2e4,
            step_s=[9, 0.01],
        )


def on_one_gpu(
    micro: float, accumulation: float = 1.0, gpu: str = "h100_80gb", parameters: float = 1.3e9
) -> Runs:
    """A job on one GPU that shards nothing."""
    return runs(
        model=["alone"],
        parameters=parameters,
        sequence=2048,
        gpu_name=[gpu],
        gpus=1.0,
        tokens_per_gpu=2048 * micro * accumulation,
        micro_batch=micro,
        sharding="none",
    )


def test_the_optimiser_updates_once_per_step():
    def log_s(accumulation: float) -> float:
        return float(steptime.log_step_s(steptime._USUAL, np.zeros(1), on_one_gpu(4, accumulation))[0])

    update_s = float(on_one_gpu(4).update_s()[0])
    assert update_s == pytest.approx(28 * 1.3e9 / 3.35e12)
    assert np.exp(log_s(2)) == pytest.approx(2 * np.exp(log_s(1)) - update_s)


def test_a_small_step_takes_as_long_as_the_host_launches_its_kernels():
    tiny = on_one_gpu(1, parameters=125e6)
    law_s = float(np.exp(steptime.log_step_s(steptime._USUAL, np.zeros(1), tiny)[0]))
    assert law_s == pytest.approx(tiny.layers[0] * 1e-3 + tiny.update_s()[0])


def test_a_gpu_is_as_slow_for_its_peak_as_the_same_chip_with_other_memory():
    slow = joined(*(measured(job(model, "a100_80gb"), 2.0, seed=3) for model in ("small", "large")))
    fast = joined(*(measured(job(model, "h100_80gb"), 1.2, seed=4) for model in ("small", "large")))
    model = StepTimes(joined(slow, fast))

    def beside_the_law(gpu: str) -> float:
        asked = job("middle", gpu)
        law = steptime.log_step_s(steptime._USUAL + 0.2, np.zeros(len(asked)), asked)
        return float(np.median(model.answer(asked.take([]), asked).step_s / np.exp(law)))

    assert beside_the_law("a100_40gb") > 1.2 * beside_the_law("h200_141gb")


def test_a_question_outside_what_was_measured_gets_the_widest_interval():
    far, near = on_one_gpu(4), job("middle", "h100_80gb", micro=(8,), gpus=(8,))
    wide, usual = (MODEL.answer(asked.take([]), asked) for asked in (far, near))
    assert wide.extrapolated.all()
    assert (wide.high_s / wide.low_s)[0] > (usual.high_s / usual.low_s)[0]
