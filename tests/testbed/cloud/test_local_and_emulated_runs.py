"""Real jobs in cgroups and networks of their own."""

import os
import pwd
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from control.jobs import InstanceType
from control.recommender.scavenger import to_goal
from lab.cloud.input import job_file
from lab.cloud.input.price_list import in_use
from lab.cloud.input.store import Measurements, trials_of
from lab.cloud.run.recommending import Market, Question
from lab.cloud.search import Backend
from lab.cloud.search.backends import command_of
from lab.cloud.search.loop import Search
from testbed.cloud.emulated import LEAST_S, SCALE, Cluster, Emulated, emulated
from testbed.cloud.local_run import profile
from testbed.cloud.provisioner import emulated_instances
from testbed.containers import network, ownership
from testbed.containers.cgroup.drivers import detect
from testbed.containers.host.identity import identity
from tests.patience import PATIENCE_S
from twinbed import ScenarioError

JOBS = Path(__file__).parents[3] / "scenarios" / "jobs"

pytestmark = [pytest.mark.root, pytest.mark.slow]


def job(steps):
    return (sys.executable, str(JOBS / "text_bag.py"), "--steps", str(steps))


def test_a_local_run_has_series_of_all_processes_and_the_steps_of_the_job(tmp_path):
    profiled = profile(job(60), workers=1, duration_s=100, interval_s=0.5, logs=tmp_path)
    assert profiled.processes == ("master", "worker-1")
    run = profiled.run
    assert run.cpu_cores.shape == run.net_in_bytes.shape
    assert run.cpu_cores.shape[1] == 2
    assert len(run.step_s) == 60 - 1 - 5
    assert (run.batch, run.layers[0]) == (64, "EmbeddingBag")
    assert (run.optimiser, run.non_trainable, run.input_size, run.output_size) == ("Adam", 0, 60, 4)
    # Both workers send their gradients, 4 bytes per parameter, at each step.
    assert run.net_out_bytes.sum() > 50 * 4 * run.parameters
    assert detect().sweep() == network.sweep() == []


def test_a_job_of_another_user_is_measured_and_its_links_lead_nowhere(tmp_path):
    """A shell in the place of Python and its hook, which this user may not be able to execute."""
    secret = tmp_path / "secret"
    model = (
        '{"batch": 8, "parameters": 1, "gradient_bytes": [4], "layers": [], "non_trainable": 0, '
        '"input_size": 1, "input_bytes": 4, "output_size": 1, "optimiser": "SGD"}'
    )
    secret.write_text(model)
    secret.chmod(0o600)
    take_steps = "head -c 80 /dev/zero >$TWINBED_STEPS/0.steps; sleep 1; "
    job = identity("nobody", [], {"PATH": os.defpath})
    written = f"echo '{model}' >$TWINBED_STEPS/0.json"
    assert profile(("sh", "-c", take_steps + written), workers=0, interval_s=0.5, identity=job).run.batch == 8
    linked = f"ln -s {secret} $TWINBED_STEPS/0.json"
    with pytest.raises(PermissionError):
        profile(("sh", "-c", take_steps + linked), workers=0, interval_s=0.5, identity=job)
    assert detect().sweep() == network.sweep() == []


def test_a_job_that_fails_says_so_and_leaves_nothing(tmp_path):
    with pytest.raises(ScenarioError, match=r"the job failed: master ended with 3"):
        profile((sys.executable, "-c", "raise SystemExit(3)"), workers=0, logs=tmp_path)
    assert detect().sweep() == network.sweep() == []


def test_one_start_serves_several_types_each_within_its_quota():
    small, large = (InstanceType(f"t-{vcpus}", "test", vcpus, 60, network_bps=10e9) for vcpus in (4, 24))
    tiny = InstanceType("tiny", "test", 4, 0.5, network_bps=10e9)
    with Cluster(job(1_000_000), 2) as cluster:
        cluster.wait_for_steps(120)
        assert cluster.model.batch == 64
        runs = [cluster.measure(emulated(kind), count=5) for kind in (large, small)]
        assert not cluster.measure(emulated(tiny)).fits
    assert all(len(run.step_s) >= 5 and run.step_s.sum() >= LEAST_S for run in runs)
    assert all((run.step_s > 0).all() for run in runs)
    assert runs[1].cpu_cores < 1.3 * 4 * SCALE
    assert detect().sweep() == network.sweep() == []


def test_a_rank_that_ends_says_so_in_its_own_words():
    words = "if [ $RANK = 1 ]; then echo no samples; exit 1; fi; echo waiting; sleep 300"
    with Cluster(("sh", "-c", words), 2) as cluster, pytest.raises(ScenarioError, match=r"steps: no samples"):
        cluster.wait_for_steps(PATIENCE_S)


def test_quick_steps_are_measured_over_many_periods_of_the_quota():
    step = """
import os, struct, time
file = open(os.environ["TWINBED_STEPS"] + "/0.steps", "ab", 0)
while True:
    end_s = time.process_time() + 2e-4
    while time.process_time() < end_s:
        pass
    file.write(struct.pack("<q", time.monotonic_ns()))
"""
    with Cluster((sys.executable, "-c", step), 1) as cluster:
        cluster.wait_for_steps(PATIENCE_S)
        run = cluster.measure(Emulated("tenth", 0.1, np.inf, 1 << 30))
    assert run.step_s.mean() == pytest.approx(0.002, rel=0.15)  # twenty of them fit into a period's rest


def test_an_emulated_job_is_the_callers_and_has_no_rights_and_no_secrets(monkeypatch):
    monkeypatch.setenv("SUDO_USER", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    show = "(cat /proc/self/status; env) >$TWINBED_STEPS/some; mv $TWINBED_STEPS/some $TWINBED_STEPS/all; "
    with Cluster(("sh", "-c", f"{show} sleep 300"), 1) as cluster:
        shown, deadline = cluster._folder / "all", time.monotonic() + PATIENCE_S
        while not shown.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        text = shown.read_text()
        known = [place for places in ownership.temporary_directories().values() for place in places]
        assert cluster._folder.parent in known, "it would stay after a kill"
        assert shown.stat().st_uid == pwd.getpwnam("nobody").pw_uid
        (cluster._folder / "0.json").symlink_to("/etc/shadow")
        with pytest.raises(PermissionError):
            _ = cluster.model
    for capabilities in ("CapPrm", "CapEff", "CapBnd", "CapInh"):
        assert f"{capabilities}:\t0000000000000000" in text
    assert "NoNewPrivs:\t1" in text
    assert "AWS_SECRET_ACCESS_KEY" not in text
    assert detect().sweep() == network.sweep() == []


def test_types_that_cannot_be_emulated():
    with pytest.raises(ScenarioError, match="type p2 has GPUs"):
        emulated(InstanceType("p2", "aws", 4, 61, gpus=1, network_bps=1e9))
    with pytest.raises(ScenarioError, match="no network_bps"):
        emulated(InstanceType("x", "aws", 4, 61))


def test_scavenger_on_emulated_instances_is_near_the_oracle_that_measures_every_cell(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.cloud.search.loop.STEPS", 5)
    file = job_file.load(JOBS / "text_bag.yaml")
    market = Market("us-central1", types=("n1-standard-8",), workers=(1, 2), batches=(16, 64, 256))
    store = Measurements(tmp_path / "m.duckdb")

    def search(method):
        question = Question(job_file.as_job(file), market, method=method, shipped=False)
        with emulated_instances() as provisioner:
            command = partial(command_of, file, Backend.TESTBED)
            loop = Search(question, in_use(None), store, provisioner, command, str(JOBS))
            return loop.run()

    found = search("scavenger")
    assert found.spent_usd == pytest.approx(sum(trial.spent_usd for trial in found.trials))
    assert found.spent_usd > 0
    assert np.isfinite([trial.noise for trial in found.trials]).any()
    oracle = search("exhaustive")  # what Scavenger measured is known to it already
    ready = oracle.ready.request
    trials = trials_of(file.name, store.runs(), ready.candidates)
    assert len(trials) == len(ready.candidates)
    cost = to_goal(ready, trials).cost_usd
    rows = [ready.candidates.configuration(row) for row in trials.candidate]
    assert cost[rows.index(found.best)] <= 1.1 * cost.min()
    assert detect().sweep() == network.sweep() == []
