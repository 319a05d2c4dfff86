"""The profiler's runs: on a pretended cluster, whose times are known, and on this machine."""

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from control.profiler.stalls import Profiled, Run, Stall
from control.profiler.stalls import stalls as apart
from testbed.cloud import all_reduce, stalls
from testbed.cloud.emulated import EmulatedRun
from testbed.cloud.stalls import Profiler
from testbed.containers import network, ownership
from testbed.containers.cgroup.drivers import detect
from testbed.containers.host.identity import identity as identity_of
from twinbed import ScenarioError

JOBS = Path(__file__).parents[3] / "scenarios" / "jobs"
STEP_S = {("kept", 1): 1.0, ("kept", 2): 2.0, ("samples", 2): 3.0, ("all_reduce.py", 2): 0.1}
starts = []


class Pretended:
    """A cluster whose steps take as long as its source of samples and its network say."""

    def __init__(self, command, workers, *, directory, identity):
        self.source, self.workers = Path(command[-1]).name, workers
        self.model = SimpleNamespace(batch=4, input_bytes=8, gradient_bytes=(8,))
        if self.source == "samples":
            Path(command[-1]).write_bytes(bytes(4096))
        starts.append((self.source, workers))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_for_steps(self, within_s):
        pass

    def measure(self, kind, *, count, within_s):
        step_s = STEP_S[self.source, self.workers] * (3 if np.isfinite(kind.network_bps) else 1)
        return EmulatedRun(np.full(count, step_s), 1.0, fits=True, first=2)


@pytest.fixture
def profiler(monkeypatch, tmp_path):
    starts.clear()
    monkeypatch.setattr(stalls, "Cluster", Pretended)
    monkeypatch.setattr(stalls, "DROP_CACHES", tmp_path / "drop_caches")
    return Profiler(lambda data: ("train", data), "kept", None, identity_of(None, (), os.environ), count=3)


@pytest.fixture
def made():
    return Profiled("job", "t", 1.0, workers=2, cores=0.5, network_bps=1e8)


def test_each_run_has_its_workers_samples_and_network_and_is_made_twice(profiler, made, tmp_path):
    profiler.profile([made])
    seconds = {run: timing.seconds for run, timing in made.timings.items()}
    # RUN1n alone is shaped, which takes three times as long here.
    assert seconds == {
        Run.ALONE: (3.0, 3.0),
        Run.TOGETHER: (6.0, 6.0),
        Run.WARM: (9.0, 9.0),
        Run.COLD: (9.0, 9.0),
        Run.APART: (18.0, 18.0),
    }
    assert {timing.samples for timing in made.timings.values()} == {3 * 4}
    assert starts == [("kept", 1), ("kept", 2), ("samples", 2)] * 2 + [("all_reduce.py", 2)]
    assert made.all_reduce_s == pytest.approx((0.1,) * len(all_reduce.SIZES))
    assert (tmp_path / "drop_caches").read_text() == "1"


def test_the_batch_that_a_job_states_counts(profiler, made):
    replace(profiler, batch=6).profile([made])
    assert {timing.samples for timing in made.timings.values()} == {3 * 6}


def test_a_run_that_spreads_is_repeated_alone_up_to_five_times(profiler, made, monkeypatch):
    steady, times = Pretended.measure, iter((1.0, 9.0, 1.0, 1.0, 1.0))

    def measure(cluster, kind, *, count, within_s):
        if (cluster.source, cluster.workers) == ("kept", 1):
            return EmulatedRun(np.full(count, next(times) / count), 1.0, fits=True)
        return steady(cluster, kind, count=count, within_s=within_s)

    monkeypatch.setattr(Pretended, "measure", measure)
    profiler.profile([made])
    assert made.timings[Run.ALONE].seconds == (1.0, 9.0, 1.0, 1.0, 1.0)
    assert len(made.timings[Run.TOGETHER].seconds) == 2
    assert starts.count(("kept", 1)) == 5
    assert starts.count(("samples", 2)) == 2


def test_without_the_right_to_drop_the_page_cache_there_is_no_disk_stall(profiler, made, monkeypatch):
    monkeypatch.setattr(stalls, "DROP_CACHES", Path("/nowhere/drop_caches"))
    profiler.profile([made])
    assert set(made.timings) == set(Run) - {Run.COLD}
    assert made.refused.startswith("the disk stall is not measured: /nowhere/drop_caches: ")
    assert made.cold is None
    assert Stall.DISK not in {found.stall for found in apart(made.timings)}


def test_a_job_that_writes_no_samples_is_refused(profiler, made, monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda path: False)
    with pytest.raises(ScenarioError, match="wrote no samples"):
        profiler.profile([made])


def test_samples_are_in_a_folder_that_is_removed_after_a_kill(profiler, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    with profiler._folder() as folder:
        known = [place for places in ownership.temporary_directories().values() for place in places]
        assert folder.parent in known
        assert folder.is_relative_to("/var/tmp")
    assert not folder.parent.exists()


@pytest.mark.root
@pytest.mark.slow
def test_a_real_job_has_all_runs_and_leaves_nothing(monkeypatch, made):
    monkeypatch.setattr(stalls, "again", lambda seconds: not seconds)
    command = (sys.executable, str(JOBS / "text_bag.py"), "--steps", "1000000", "--data")
    me = identity_of(None, (), os.environ)
    Profiler(lambda data: (*command, data), "kept", None, me, count=4).profile([made])
    assert set(made.timings) == set(Run)
    assert (made.batch, made.gradient_bytes[0]) == (64, 20_000 * 64 * 4)
    assert min(made.all_reduce_s) > 0
    assert detect().sweep() == network.sweep() == []
