"""A real training job's trace becomes a question to the twin's fabric; nccl-tests' output a calibration."""

import json
import subprocess
import sys

import pytest
import yaml

from lab.fabric.calibrate.values import load_calibration
from tests.patience import PATIENCE_S
from tests.traces.sample_chakra import step, written

JOB = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(300, 400))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                 schedule=schedule(wait=1, warmup=1, active=4, repeat=1),
                 on_trace_ready=lambda it: it.export_chrome_trace(f"{folder}/{rank}.json.gz")) as profiler:
        for _ in range(7):
            model(torch.randn(32, 300)).sum().backward()
            profiler.step()
    dist.destroy_process_group()
    os._exit(0)  # PyTorch's threads may abort a process as it exits.

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), 2)
"""
PARAMETERS = 300 * 400 + 400

PRINTED = """\
# nThread 1 nGpus 1 minBytes 1024 maxBytes 104857600 step: 100(factor)
#  Rank  0 Group  0 Pid   9228 on   node-a device  0 [0x0f] NVIDIA A100
#  Rank  1 Group  0 Pid   9229 on   node-b device  0 [0x0f] NVIDIA A100
#       size         count      type   redop    root     time   algbw   busbw #wrong
        1024           256     float     sum      -1    40.10    0.03    0.03      0
node-a: a line of something else
     1048576        262144     float     sum      -1    140.1    7.48    7.48      0
   104857600      26214400     float     sum      -1  10040.1   10.44   10.44      0
# Avg bus bandwidth    : 5.98
"""


@pytest.mark.slow
def test_a_job_that_pytorch_traced_runs_on_the_twins_fabric(twinbed, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, tmp_path / "job.py", tmp_path]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ran.returncode == 0, ran.stderr
    odd = ("traces", "import", "kineto", tmp_path / "1.json.gz", "--out", tmp_path / "my job.yaml")
    assert "name: expected a letter or digit" in twinbed(*odd).refused
    out = tmp_path / "traced.yaml"
    told = twinbed("traces", "import", "kineto", tmp_path / "1.json.gz", "--out", out, "--format", "json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    (row,) = found["rows"]
    assert found["facts"]["job"] == "rank 1 of 2, operators on a CPU"
    assert found["facts"]["steps"] == "4, number 2 to 5 of the profiler"
    wanted = ("all_reduce", 4 * PARAMETERS, 2, 1.0, 4 * PARAMETERS)
    assert tuple(row[key] for key in ("operation", "size_bytes", "ranks", "per_step", "link_bytes")) == wanted
    training = yaml.safe_load(out.read_text())["fabric"]["training"]
    assert training["parameters"] * training["gradient_bytes"] == 4 * PARAMETERS
    ended = twinbed("run", out, "--store", tmp_path / "runs", "--format", "json", "--no-progress")
    assert ended.code == 0, ended.err
    iteration_s = json.loads(ended.out)["rows"][0]["iteration_p50_s"]
    # 0.1 ms of the twin's 100 Gbit/s are little beside the work of a step.
    assert iteration_s == pytest.approx(training["micro_batch_s"], rel=0.5)


def test_a_trace_without_gradients_is_refused(twinbed, tmp_path):
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 9}
    (tmp_path / "alone.json").write_text(json.dumps({"traceEvents": [step]}))
    ended = twinbed("traces", "import", "kineto", tmp_path / "alone.json", "--out", tmp_path / "a.yaml")
    assert "profile a data-parallel job" in ended.refused
    assert not (tmp_path / "a.yaml").exists()


def test_a_job_in_a_chakra_trace_runs_on_the_twins_fabric(twinbed, tmp_path):
    path, out = written(tmp_path / "rank0.et", step()), tmp_path / "traced.yaml"
    told = twinbed("traces", "import", "chakra", path, "--out", out, "--format", "json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert found["facts"]["job"] == "one rank of 8, kernels of a GPU"
    assert found["facts"]["steps"] == "1, the whole trace"
    training = yaml.safe_load(out.read_text())["fabric"]["training"]
    assert (training["parameters"], training["gradient_bytes"], training["data"]) == (2000, 2, 8)
    assert training["micro_batch_s"] == pytest.approx(80e-6)
    ended = twinbed("run", out, "--store", tmp_path / "runs", "--format", "json", "--no-progress")
    assert ended.code == 0, ended.err
    bad = ("traces", "import", "chakra", out, "--out", tmp_path / "b.yaml")
    assert "no Chakra trace" in twinbed(*bad).refused


def test_latency_and_rate_come_from_nccl_tests(twinbed, tmp_path):
    (tmp_path / "printed.txt").write_text(PRINTED)
    out = tmp_path / "mine.toml"
    given = ("traces", "import", "nccl-tests", tmp_path / "printed.txt", "--out", out)
    assert "--operation is not in the output" in twinbed(*given).refused
    ended = twinbed(*given, "--operation", "all_reduce", "--format", "json")
    assert ended.code == 0, ended.err
    assert all(abs(row["error"]) < 0.01 for row in json.loads(ended.out)["rows"])
    # 40 µs for two steps, and 10 ms more for 100 MiB, of which a link carries all: 83.9 Gbit/s, 3 % headers.
    calibration = load_calibration(out)
    assert calibration.values["collective.alpha_s"].value == pytest.approx(20e-6, rel=0.01)
    assert calibration.values["link.rate_bps"].value == pytest.approx(86.6e9, rel=0.01)


def test_an_operation_is_told_by_newer_outputs(twinbed, tmp_path):
    (tmp_path / "printed.txt").write_text("# Collective test starting: alltoall_perf\n" + PRINTED)
    ended = twinbed("traces", "import", "nccl-tests", tmp_path / "printed.txt", "--out", tmp_path / "a.toml")
    assert "alltoall, 2 ranks" in ended.out


def test_another_output_is_refused(twinbed, tmp_path):
    (tmp_path / "printed.txt").write_text("hello\n")
    ended = twinbed("traces", "import", "nccl-tests", tmp_path / "printed.txt", "--out", tmp_path / "a.toml")
    assert "expected nccl-tests' output" in ended.refused


def test_times_of_two_runs_are_not_fitted_as_one(twinbed, tmp_path):
    (tmp_path / "printed.txt").write_text(PRINTED + PRINTED.replace("140.1 ", "280.1 "))
    given = ("traces", "import", "nccl-tests", tmp_path / "printed.txt", "--out", tmp_path / "a.toml")
    refused = twinbed(*given, "--operation", "all_reduce").refused
    assert "line 11: a second run of nccl-tests begins; give one run" in refused


def test_an_operation_that_the_output_contradicts_is_refused(twinbed, tmp_path):
    (tmp_path / "printed.txt").write_text("# Collective test starting: alltoall_perf\n" + PRINTED)
    given = ("traces", "import", "nccl-tests", tmp_path / "printed.txt", "--out", tmp_path / "a.toml")
    assert "the output is of alltoall" in twinbed(*given, "--operation", "all_reduce").refused
    assert twinbed(*given, "--operation", "alltoall").code == 0
