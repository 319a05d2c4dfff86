"""Language models that are judged are never learned from, and regimes are distinguished."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lab.cloud.input import step_file
from studies.cloud import pipelines, steptimes
from studies.cloud.judged import Goal, cells, held, pooled
from tests.twin.cloud.test_steptime import job, measured
from twin.cloud.configurations import Runs, joined
from twin.cloud.steptime import StepTimes

KNOWN = joined(
    *(measured(job(model), 1.3, seed=seed) for seed, model in enumerate(("small", "middle", "large")))
)


def test_the_model_never_sees_the_times_that_it_is_judged_on(monkeypatch: pytest.MonkeyPatch):
    answer = StepTimes.answer

    def watched(self: StepTimes, probes: Runs, asked: Runs):
        assert np.isnan(asked.step_s).all()
        assert not set(asked.model) & set(self._others.model)
        assert len(probes) == 2
        return answer(self, probes, asked)

    monkeypatch.setattr(StepTimes, "answer", watched)
    monkeypatch.setattr(steptimes, "_LEFT_OUT", {"a size": ("model",)})
    told = dict(steptimes.probed(KNOWN))
    assert list(told) == [
        "a size left out",
        "a size left out, configuration constant",
        "a size left out, configuration changes",
    ]
    assert pooled(told["a size left out"]).error.size == 6
    assert not told["a size left out, configuration changes"]
    assert np.abs(pooled(told["a size left out"]).error).max() < 0.05


def test_a_row_of_the_page_has_all_figures_or_dashes():
    nothing = cells({}, Goal(median=0.1))
    assert nothing[:2] == [0, 0]
    row = cells(held({"a": np.full(6, 0.01), "b": np.full(6, -0.2)}), Goal(median=0.2, signed=0.05))
    assert row[:2] == [2, 12]
    assert row[5:] == ["median ≤ 0.20, mean ≤ 0.05", "missed", "50%", "missed"]


def test_llama_3s_fall_is_within_two_points():
    ((_, errors),) = pipelines.llama()
    assert abs(pooled(errors).error[0]) < 0.025


@pytest.mark.slow
def test_tokens_per_second_of_sizes_that_were_left_out(public_data: Callable[[str], Path]):
    known = step_file.measured(public_data("mosaic_mpt_throughput") / "mpt_training_throughput.csv")
    errors = pooled(next(iter(steptimes.probed(known)))[1])
    assert np.median(np.abs(errors.error)) <= 0.05
    assert abs(errors.error.mean()) <= 0.03
    assert 0.85 <= errors.inside.mean() <= 0.95
