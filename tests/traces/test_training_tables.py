from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from traces.readers import training
from twinbed import TraceError

Data = Callable[[str], Path]


def written(tmp_path: Path, text: str, name: str = "table.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_placement_is_a_digit_per_node(tmp_path: Path):
    text = "model,placement,local_bsz,step_time_s,sync_time_s\na,1,8,0.1,0\na,012,8,0.3,0\n"
    with pytest.raises(TraceError, match="line 3, column placement: '012'"):
        training.placements(written(tmp_path, text))
    table = training.placements(written(tmp_path, text.replace("012", "143")))
    assert [column[1] for column in (table.nodes, table.gpus, table.most)] == [3, 8, 4]


def test_replicas_spread_evenly(tmp_path: Path):
    text = "model,num_nodes,num_replicas,local_bsz,step_time_s\na,6,7,8,0.1\n"
    assert training.scalability(written(tmp_path, text)).most.tolist() == [2]


def test_throughput_is_of_all_workers_together(tmp_path: Path):
    head = "source,gpu,placement,model,batch_size,num_gpus,throughput_steps_per_s\n"
    rows = "s,k80,consolidated,m,16,4,8\ns,k80,unconsolidated,m,16,4,4\n"
    rows += "s,k80,unconsolidated,m,16,1,4\ns,k80,consolidated,n,,1,4\ns,k80,consolidated,m,16,8,0\n"
    table = training.throughputs(written(tmp_path, head + rows))["s"]
    assert table.job.tolist() == ["m 16", "m 16"]
    assert table.step_s.tolist() == [0.5, 1.0]
    assert (table.nodes.tolist(), table.most.tolist()) == ([1, 4], [4, 1])


LANGUAGE = (
    "model,gpu,precision,sharding_strategy,activation_checkpointing,numparams,seqlen_tokens,num_gpus,"
    "microbatchsize,globalbatchsize_tokens,throughput_tok_per_s\n"
)


def test_a_language_models_configuration_is_read_whole(tmp_path: Path):
    rows = "3b,h100,amp_bf16,FULL_SHARD,True,3e9,2048,16,8,1000,500\n"
    rows += "7b,a100,bf16,SHARD_GRAD_OP,False,7e9,512,8,4,10,5\n"
    read = training.language_models(written(tmp_path, LANGUAGE + rows))
    assert (read.precision.tolist(), read.sharding.tolist()) == (["mixed", "bf16"], ["full", "gradients"])
    assert read.recompute.tolist() == [True, False]
    assert (read.tokens / read.tokens_per_s).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("amp_bf16", "int4", "line 2, column precision: 'int4', expected one of bf16"),
        ("FULL_SHARD", "HALF", "column sharding_strategy: 'HALF'"),
        ("True", "x", "column activation_checkpointing"),
        (",16,", ",0,", "column num_gpus: '0', expected above zero"),
    ],
)
def test_a_language_models_row_that_cannot_be_is_refused(tmp_path: Path, old: str, new: str, message: str):
    row = "3b,h100,amp_bf16,FULL_SHARD,True,3e9,2048,16,8,1000,500\n".replace(old, new)
    with pytest.raises(TraceError, match=message):
        training.language_models(written(tmp_path, LANGUAGE + row))


def test_a_profile_is_aligned_with_what_was_measured(tmp_path: Path):
    head = "instance_type,model,batchsize,image_px,batch_latency_s\n"
    measured = written(tmp_path, head + "x,m,16,32,1\nx,m,16,32,3\nx,m,16,32,2\ny,m,16,32,4\ny,n,16,32,5\n")
    seen = written(
        tmp_path,
        "anchor_instance,model,batchsize,image_px,Device_IDLE,Device_Relu\nx,m,16,32,5,1e6\n",
        "profile.csv",
    )
    table = training.profiled(measured, seen)
    assert table.accelerators == ("x", "y")
    assert table.step_s[0].tolist() == [2.0, 4.0]
    assert np.isnan(table.step_s[1, 0])
    assert table.operation_s["x"][0].tolist() == [1.0]
    assert np.isnan(table.operation_s["x"][1]).all()
    with pytest.raises(TraceError, match="no column Device_"):
        training.profiled(measured, measured)


def test_a_result_handed_in_again_counts_once(tmp_path: Path):
    head = (
        "round,submitter,system,division,benchmark,status,accelerator,nodes,accelerators_per_node,"
        "num_accelerators,global_batch_size,time_to_train_s\n"
    )
    row = "{},s,sys,{},b,{},acc,1,8,8,256,{}\n"
    text = head + "".join(
        row.format(*values)
        for values in [
            ("v2", "closed", "success", 10),
            ("v1", "closed", "success", 10),
            ("v1", "closed", "aborted", 99),
            ("v1", "open", "success", 99),
        ]
    )
    table = training.submissions(written(tmp_path, text))
    assert (table.round.tolist(), table.time_s.tolist()) == (["v1"], [10.0])


@pytest.mark.slow
def test_the_public_tables_are_read(public_data: Data):
    pollux = public_data("pollux_t4")
    assert training.placements(pollux / "pollux_placements.csv").step_s.size == 3495
    assert training.scalability(pollux / "pollux_scalability.csv").step_s.size == 944
    gavel = training.throughputs(public_data("gavel_throughputs") / "gavel_isolated_throughput.csv")
    assert {name: table.step_s.size for name, table in gavel.items()} == {
        "gavel_physical_cluster": 315,
        "gavel_simulation": 315,
    }
    profet = public_data("profet_cnn_aws_gpu")
    table = training.profiled(profet / "profet_latency.csv.gz", profet / "profet_tf_profile_ops_us.csv.gz")
    assert (table.step_s.shape, len(table.operation_s)) == ((251, 4), 4)
    runs = training.submissions(public_data("mlperf_training") / "mlperf_training_runs.csv.gz")
    assert runs.time_s.size == 885
