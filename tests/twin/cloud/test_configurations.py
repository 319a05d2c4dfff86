"""A quantity that is not given has its usual value. An impossible one is refused, and its row is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from twin.cloud import configurations
from twin.cloud.configurations import runs
from twinbed import InvariantError, ScenarioError


def one(**changed):
    """A run of GPT-3's smallest relative on a node of A100s."""
    given = {
        "parameters": 1.3e9,
        "sequence": 2048,
        "gpu_name": ["a100_80gb"],
        "gpus": 8,
        "tokens_per_gpu": 65536,
    }
    return runs(**(given | changed))


@pytest.mark.parametrize(
    ("parameters", "layers", "width"),
    [(125e6, 12, 768), (1.316e9, 24, 2048), (6.65e9, 32, 4096), (30e9, 48, 7168), (175e9, 96, 12288)],
)
def test_published_models_have_their_layers_and_width(parameters: float, layers: float, width: float):
    deep, wide = configurations.usual_shape(np.array([parameters]), np.array([2048.0]))
    assert deep == pytest.approx([layers], rel=0.05)
    assert wide == pytest.approx([width], rel=0.05)


def test_memory_decides_the_micro_batch_that_is_not_given_and_says_so():
    asked = one()
    # 1.3e9 × 16 bytes / 8 GPUs + two layers; 34 × 24 × 2048 + 8 × 50257 bytes a token; 90 % of 80 GB.
    assert asked.micro_batch == [16]
    assert asked.predicted.all()
    assert asked.accumulation == [2]
    assert not one(micro_batch=4).predicted.any()
    assert one(gpu_name=["a100_40gb"]).micro_batch < 10
    assert one(recompute=True, tokens_per_gpu=1e7).micro_batch > 50


@pytest.mark.parametrize("sequences", [12, 24, 31, 32, 48])
def test_a_micro_batch_that_is_not_given_divides_the_batch(sequences: int):
    asked = one(tokens_per_gpu=sequences * 2048, gpu_name=["a100_40gb"])
    largest = one(tokens_per_gpu=1e7, gpu_name=["a100_40gb"]).micro_batch[0]
    divisors = [size for size in range(1, sequences + 1) if sequences % size == 0 and size <= largest]
    assert asked.micro_batch == [max(divisors)]
    assert asked.micro_batch * asked.accumulation == [sequences]


def test_a_state_that_just_fits_is_asked_about():
    assert one(parameters=9e9, gpus=1, micro_batch=1, precision="bf16").micro_batch == [1]
    assert one(parameters=7e9, gpus=2, micro_batch=1).micro_batch == [1]


def test_a_step_that_was_measured_did_fit():
    assert one(parameters=30e9, gpus=1, micro_batch=1, step_s=100.0).parameters == [30e9]


def test_more_gpus_leave_more_memory_under_full_sharding_only():
    wide = [one(parameters=13e9, recompute=True, tokens_per_gpu=1e7, gpus=n).micro_batch[0] for n in (8, 64)]
    assert wide[1] > wide[0]
    kept = [one(sharding="none", tokens_per_gpu=1e7, gpus=n).micro_batch[0] for n in (8, 64)]
    assert kept[0] == kept[1]


def test_pure_16_bits_leave_half_of_the_state_to_the_micro_batch():
    """8 bytes a parameter, as the check of the state counts, and not 16."""
    tight = {"parameters": 30e9, "gpus": 8, "tokens_per_gpu": 1e7, "recompute": True}
    assert one(**tight, precision="bf16").micro_batch[0] > one(**tight, precision="mixed").micro_batch[0]
    assert one(parameters=50e9, recompute=True, precision="bf16").micro_batch[0] >= 1


def test_a_micro_batch_is_no_larger_than_the_step():
    assert one(tokens_per_gpu=4096).micro_batch == [2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gpu_name": ["x"]}, "no GPU 'x' is known; there are v100_16gb"),
        ({"sharding": "half"}, "row 1: sharding 'half' is not one of full, gradients, none"),
        ({"precision": "fp8"}, "row 1: this GPU has no fp8"),
        ({"gpus": 0}, "row 1: gpus must be above zero"),
        ({"micro_batch": -1}, "row 1: micro_batch must be above zero"),
        ({"parameters": 70e9}, "row 1: one sequence does not fit the memory"),
        # Two GPUs a sequence: the answer would be for a whole one on each.
        ({"tokens_per_gpu": 1024}, "row 1: a micro-batch is larger than tokens_per_gpu .*; give more"),
        # 16 bytes a parameter on a GPU of 80 GB, whatever the micro-batch; half of that in pure 16 bits.
        (
            {"parameters": 7e9, "gpus": 1, "micro_batch": 1},
            "row 1: the model's state does not fit the memory",
        ),
        ({"parameters": 12e9, "gpus": 1, "micro_batch": 1, "precision": "bf16"}, "row 1: the model's state"),
        ({"parameters": 7e9, "sharding": "none", "micro_batch": 1}, "row 1: the model's state does not"),
    ],
)
def test_what_cannot_be_is_refused(changed, message: str):
    with pytest.raises(ScenarioError, match=message):
        one(**changed)


def test_columns_of_different_lengths_are_our_bug():
    made = one()
    with pytest.raises(InvariantError, match="different lengths"):
        replace(made, gpus=made.gpus[:0])
