"""A question about a step is a file, and what is wrong in it is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lab.cli.main import call
from lab.cloud.input import step_file
from twin.cloud.steptime import StepTimes
from twinbed import ScenarioError

QUESTION = """
model: 7b
parameters: 6.65e9
sequence: 2048
gpu: h100_80gb
gpus: [16, 64]
tokens_per_gpu: 65536
"""
PROBES = "probes: [{gpus: 8, step_s: 6.0, micro_batch: 4}, {gpus: 16, step_s: 5.5}]\n"
HEAD = (
    "model,gpu,precision,sharding_strategy,activation_checkpointing,numparams,seqlen_tokens,num_gpus,"
    "microbatchsize,globalbatchsize_tokens,throughput_tok_per_s\n"
)


def write(folder: Path, text: str, name: str = "step.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_what_is_not_given_is_usual_and_a_probe_has_its_own(tmp_path):
    asked, probes = step_file.load(write(tmp_path, QUESTION + PROBES))
    assert asked.gpus.tolist() == [16, 64]
    assert asked.predicted.all()
    assert np.isnan(asked.step_s).all()
    assert (set(asked.precision), set(asked.sharding)) == ({"mixed"}, {"full"})
    assert probes.step_s.tolist() == [6.0, 5.5]
    assert probes.predicted.tolist() == [False, True]
    assert probes.micro_batch[0] == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (QUESTION.replace("h100_80gb", "h1000"), r"step\.yaml: gpu: no GPU 'h1000' is known"),
        (QUESTION + "precison: bf16", "did you mean 'precision'"),
        (
            QUESTION + "probes: [{gpus: 8, step_s: 0.1}]",
            r"step\.yaml: probes\.0: this step is faster than the GPU's peak",
        ),
        (
            QUESTION + "probes: [{gpus: 8, step_s: 6.0, micro_batch: 64}]",
            r"probes\.0: a micro-batch of 64 sequences of 2048 tokens is more than the 65536 tokens_per_gpu",
        ),
        (QUESTION.replace("[16, 64]", "[]"), "gpus: "),
        (
            QUESTION.replace("[16, 64]", "[16, 0]"),
            r"step\.yaml: gpus\.1: Input should be greater",
        ),
        (QUESTION + "sharding: zero", r"step\.yaml: with 16 GPUs: sharding 'zero' is not one of full,"),
        (QUESTION.replace("[16, 64]", "[1]"), r"step\.yaml: with 1 GPU: one sequence does not fit"),
        (QUESTION + "probes: [{gpus: 8, step_s: 9, sharding: zero}]", r"probes\.0: sharding 'zero'"),
        ("sequence: 3", "parameters: missing"),
        (QUESTION.replace("gpus: [16", "gpus: [16.5, 16"), "gpus.0"),
        (
            QUESTION + "micro_batch: 33\n",
            r"step\.yaml: with 16 GPUs: a micro-batch is larger than tokens_per_gpu / sequence",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        step_file.load(write(tmp_path, text))


OWN = """
flops: 2.25e15
memory_bytes: 180e9
memory_bytes_s: 7.7e12
link_bytes_s: 900e9
network_bytes_s: 400e9
"""


def test_a_gpu_that_no_table_has_is_described_and_one_that_it_has_is_changed(tmp_path):
    other = QUESTION.replace("h100_80gb", "b200")
    asked, _ = step_file.load(write(tmp_path, other + OWN))
    assert (set(asked.gpu), set(asked.flops), set(asked.link_bytes_s)) == ({"b200"}, {2.25e15}, {900e9})
    assert StepTimes(asked.take([])).answer(asked.take([]), asked).extrapolated.all()
    with pytest.raises(ScenarioError, match=r"no GPU 'b200' is known; .* give memory_bytes_s, link_bytes_s"):
        step_file.load(write(tmp_path, other + "flops: 1e15\nmemory_bytes: 180e9\nnetwork_bytes_s: 4e11\n"))
    cut, _ = step_file.load(write(tmp_path, QUESTION + "link_bytes_s: 32e9\n"))
    assert (set(cut.link_bytes_s), set(cut.flops)) == ({32e9}, {989e12})
    with pytest.raises(ScenarioError, match="no fp8"):
        step_file.load(write(tmp_path, other + OWN + "precision: fp8\n"))


def test_a_row_that_cannot_be_is_named(tmp_path):
    row = "3b,h100_80gb,amp_bf16,FULL_SHARD,True,3e9,2048,8,8,131072,1e12\n"
    with pytest.raises(ScenarioError, match=r"runs\.csv: line 2: this step is faster"):
        step_file.measured(write(tmp_path, HEAD + row, "runs.csv"))


def test_the_command_line_answers_with_intervals_and_flags(tmp_path, capsys):
    rows = "".join(
        f"{name},h100_80gb,amp_bf16,FULL_SHARD,False,{size},2048,{gpus},4,{gpus * 32768},{gpus * rate}\n"
        for name, size, rate in (("3b", 2.65e9, 22e3), ("13b", 13e9, 4.5e3))
        for gpus in (8, 16, 64)
    )
    others = write(tmp_path, HEAD + rows, "runs.csv")
    question = write(tmp_path, QUESTION + "micro_batch: 4\n" + PROBES)
    assert call(["predict", "step", str(question), "--others", str(others), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    told, notes = answer["rows"], answer["notes"]
    assert "hold 90 %;" in notes[0]
    assert [row["gpus"] for row in told] == [16, 64]
    assert told[0]["step_s"] == pytest.approx(5.5)
    assert all(row["low_s"] < row["step_s"] < row["high_s"] for row in told)
    assert [row["regime"] for row in told] == ["constant", "constant"]
    assert call(["predict", "step", str(question), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert "extrapolated" in answer["rows"][1]["flags"]
    assert "hold 90 %, but were not judged for rows that are extrapolated" in answer["notes"][0]


def test_the_answer_says_that_an_all_reduce_of_several_nodes_is_a_ring(tmp_path, capsys):
    for change, notes in (("", 1), ("sharding: none\n", 2), ("sharding: none\ngpus: [8]\n", 1)):
        text = QUESTION.replace("gpus: [16, 64]\n", "") if "gpus" in change else QUESTION
        question = write(tmp_path, text.replace("6.65e9", "1e9") + "micro_batch: 1\n" + change)
        assert call(["predict", "step", str(question), "--format", "json"]) == 0
        said = json.loads(capsys.readouterr().out)["notes"]
        assert len(said) == notes
        assert ("is taken for a ring" in said[-1]) == (notes == 2)
