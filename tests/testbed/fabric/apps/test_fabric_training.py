"""Training over the fabric: faults change when iterations end, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from control.fabric import Fault, FaultKind
from testbed.fabric import faults, up
from testbed.fabric.apps import restart, training
from testbed.fabric.apps.paths import answers, carried
from testbed.fabric.apps.restart import Life
from testbed.fabric.apps.training import Trained, Training
from testbed.fabric.model import Endpoint, Fabric
from twinbed import BackendError, ScenarioError

WITHIN_S = 90.0
SECOND_NS = 1_000_000_000
JOB = Training(iterations=80, save_every=10)


@pytest.mark.root
@pytest.mark.slow
def test_a_training_through_a_fault_equals_one_that_died_and_started_again(
    fabric: Fabric, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    places = [host.endpoints[0] for host in fabric.hosts]
    with training.start(JOB, places, tmp_path / "fault") as running:
        running.wait_computing(WITHIN_S)
        fault = _of_the_path_in_use(fabric)
        at_ns = faults.inject(fabric, fault).at_ns
        well = running.wait(WITHIN_S)
        faults.clear(fabric, fault)
    up.wait_converged(fabric, WITHIN_S)
    through = training.read(tmp_path / "fault", len(places))
    assert (well, through.errors) == (True, ())
    assert through.ready_ns < at_ns < through.ended_ns[-1]

    with _killed_after(places[1], tmp_path / "death", saves=2):
        lives = restart.run_to_end(
            JOB,
            places,
            tmp_path / "death",
            path_is_back=lambda: answers(places[0], places[1]),
            within_s=2 * WITHIN_S,
        )
    assert len(lives) == 2
    assert lives[1].trained.first >= 20
    assert np.array_equal(restart.curve(lives), through.loss)
    assert len({*through.digests, *lives[1].trained.digests}) == 1
    assert through.loss[:, -10:].mean() < through.loss[:, :10].mean()


def test_what_a_death_costs_is_what_passed_until_its_work_was_done_again() -> None:
    # Iterations of 1 s; 7 done, saved after 5; noticed 4 s later, path back after 3, computing after 2.
    first = Life(0, 11 * SECOND_NS, 14 * SECOND_NS, _trained(first=0, ready_s=0, count=7))
    second = Life(14 * SECOND_NS, 21 * SECOND_NS, 0, _trained(first=5, ready_s=16, count=5))
    lost = restart.losses([first, second])
    np.testing.assert_allclose(
        [lost.detect_s, lost.path_s, lost.start_s, lost.redo_s], [[4.0], [3.0], [2.0], [2.0]]
    )
    assert lost.total_s == 11.0  # 21 s for 10 s of work
    assert restart.curve([first, second]).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]


def test_a_life_without_progress_is_part_of_the_loss_before_it() -> None:
    lives = [
        Life(0, 11 * SECOND_NS, 14 * SECOND_NS, _trained(first=0, ready_s=0, count=7)),
        Life(14 * SECOND_NS, 20 * SECOND_NS, 22 * SECOND_NS, _trained(first=0, ready_s=0, count=0)),
        Life(22 * SECOND_NS, 29 * SECOND_NS, 0, _trained(first=5, ready_s=24, count=5)),
    ]
    assert restart.losses(lives).total_s.sum() == 29.0 - 10.0


def test_a_record_that_was_cut_off_is_read_as_far_as_all_ranks_came(tmp_path: Path) -> None:
    lines = ['{"ready_ns": 5, "first": 0}', '{"iteration": 0, "ended_ns": 7, "loss": 2.5}']
    (tmp_path / "start-0-rank-0.jsonl").write_text("\n".join([*lines, '{"iteration": 1, "ended_ns": 9, "l']))
    (tmp_path / "start-0-rank-1.jsonl").write_text(
        "\n".join([*lines, '{"iteration": 1, "ended_ns": 9, "loss": 2.0}', ""])
    )
    trained = training.read(tmp_path, 2)
    assert trained.ended_ns.tolist() == [7]
    assert trained.loss.tolist() == [[2.5], [2.5]]
    assert trained.digests == ()
    assert training.read(tmp_path / "never", 2).reached == 0


def test_a_job_that_cannot_be_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"training\.iterations is 0, expected at least 1"):
        Training(iterations=0)
    with pytest.raises(ScenarioError, match=r"training\.timeout_s"):
        Training(timeout_s=0.0)


def test_without_pytorch_a_training_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(training, "find_spec", lambda _: None)
    with pytest.raises(BackendError, match=r"pip install 'twinbed\[cloud\]'"):
        training.start(JOB, [], tmp_path)


def _of_the_path_in_use(fabric: Fabric) -> Fault:
    host = fabric.hosts[0]
    out_per_s = [carried(host, uplink, over_s=0.1).out_per_s for uplink in host.uplinks]
    return Fault(FaultKind.PORT, host.index, int(np.argmax(out_per_s)))


@contextmanager
def _killed_after(place: Endpoint, folder: Path, *, saves: int) -> Iterator[None]:
    """Kill the process of an endpoint once the job has this number of checkpoints."""
    record = folder / "start-0-rank-0.jsonl"

    def kill() -> None:
        until = time.monotonic() + WITHIN_S
        while not record.exists() or record.read_text().count('"saved"') < saves:
            if time.monotonic() > until:
                return
            time.sleep(0.01)
        listed = subprocess.run(("ip", "netns", "pids", place.namespace), capture_output=True, check=True)
        for pid in listed.stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    yield
    thread.join()


def _trained(*, first: int, ready_s: int, count: int) -> Trained:
    ended_ns = (ready_s + 1 + np.arange(count)) * SECOND_NS
    loss = np.arange(first, first + count, dtype=float)[None]
    return Trained(first, ready_s * SECOND_NS, ended_ns, loss, np.empty(0), (), ())
