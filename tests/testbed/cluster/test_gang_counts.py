"""How many steps of a job count after it was killed, without any process."""

import math
import signal
import time
from pathlib import Path

import pytest

from testbed.cluster import slurm
from testbed.cluster.gangs import Gangs, Life, Training
from testbed.containers.host.container import Container, ContainerSpec
from twinbed import BackendError


def life(gangs: Gangs, folder: Path, steps: int, base: int, leaving: float | None = None) -> None:
    """Put a life without processes there, which has recorded so many steps."""
    folder.mkdir()
    (folder / "0.steps").write_bytes(bytes(8 * steps))
    gangs._lives[0] = Life(base, math.inf, [], folder, leaving, released=True)


def gangs_of(folder: Path) -> Gangs:
    job = Training(("train",), folder, processes=1, steps=100, every=10)
    return Gangs([job], driver=object(), identity=object())  # type: ignore[arg-type]


def test_a_job_killed_while_it_saved_may_end_after_fewer_steps_than_were_left(tmp_path) -> None:
    gangs = gangs_of(tmp_path)
    life(gangs, tmp_path / "first", 27, base=0, leaving=0.0)
    gangs.kill(0)
    assert gangs.look(0).done == 20
    life(gangs, tmp_path / "second", 73, base=20)  # It had saved all 27.
    seen = gangs.look(0)
    assert (seen.done, seen.alive) == (100, False)


class Late(Gangs):
    """Its processes take three more steps, and save at one of them, before the signal ends them."""

    def _remove(self, job: int) -> None:
        (self._lives[job].folder / "0.steps").write_bytes(bytes(8 * 31))
        super()._remove(job)


def test_a_save_just_before_the_kill_counts(tmp_path) -> None:
    job = Training(("train",), tmp_path, processes=1, steps=100, every=10)
    gangs = Late([job], driver=object(), identity=object())  # type: ignore[arg-type]
    life(gangs, tmp_path / "first", 28, base=0)
    gangs.kill(0)
    assert gangs.look(0).done == 30
    life(gangs, tmp_path / "second", 70, base=30)  # It goes on from the save at step 30.
    assert gangs.look(0).done == 100


class Stuck:
    """A group that is removed only when the test does not expect it to be stuck."""

    def __init__(self, stuck: bool) -> None:
        self.stuck, self.removed, self.signals = stuck, False, []

    def send(self, number: int) -> None:
        self.signals.append(number)

    def remove(self) -> None:
        self.removed = not self.stuck
        if self.stuck:
            raise BackendError("a process does not die")


def test_a_group_that_cannot_be_removed_does_not_keep_the_others(tmp_path) -> None:
    gangs = gangs_of(tmp_path)
    life(gangs, tmp_path / "first", 10, base=0)
    groups = [Stuck(True), Stuck(False), Stuck(True)]
    spec = ContainerSpec("one", ("train",))
    gangs._lives[0].containers += [Container(spec, group, None) for group in groups]
    with pytest.raises(BackendError, match="does not die"):
        gangs.kill(0)
    assert [group.removed for group in groups] == [False, True, False]
    assert all(group.signals == [signal.SIGKILL] for group in groups)


def test_a_slurm_that_does_not_answer_is_given_up(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(slurm, "_BUSY_S", 0.2)
    gangs = slurm.SlurmGangs.__new__(slurm.SlurmGangs)
    gangs._conf = tmp_path / "slurm.conf"
    assert gangs._ask("sleep", "60", check=False) == ""
    with pytest.raises(BackendError, match=r"sleep 60: no answer within 0\.2 s; its log: no error was"):
        gangs._ask("sleep", "60")


def test_a_command_whose_connection_slurm_closes_asks_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(slurm, "_LOOK_S", 0.0)
    gangs = slurm.SlurmGangs.__new__(slurm.SlurmGangs)
    gangs._conf, gangs._daemons = tmp_path / "slurm.conf", []
    first = tmp_path / "first"
    assert (
        gangs._ask("sh", "-c", f"[ -e {first} ] && echo done && exit; : > {first}; kill -PIPE $$") == "done\n"
    )


class Words(Gangs):
    def _last_words(self, life: Life) -> str:
        return "no more data"


def test_a_job_that_was_never_asked_to_leave_must_take_all_its_steps(tmp_path) -> None:
    job = Training(("train",), tmp_path, processes=1, steps=100, every=10)
    gangs = Words([job], driver=object(), identity=object())  # type: ignore[arg-type]
    life(gangs, tmp_path / "first", 27, base=0)
    gangs.kill(0)
    life(gangs, tmp_path / "second", 73, base=20)
    with pytest.raises(BackendError, match="after 93 steps: no more data"):
        gangs.look(0)


class Ended(Gangs):
    """Its first process was ended by SIGTERM the first time, and by itself from then on."""

    codes = (-15, 0)

    def _codes(self, job: int, life: Life) -> list[int | None]:
        return [self.codes[life.base > 0]]


def test_a_job_whose_end_was_cut_short_by_the_wish_to_leave_may_have_saved_it_all(tmp_path) -> None:
    job = Training(("train",), tmp_path, processes=1, steps=105, every=10)
    gangs = Ended([job], driver=object(), identity=object())  # type: ignore[arg-type]
    life(gangs, tmp_path / "first", 105, base=0, leaving=time.monotonic())
    assert gangs.look(0).done == 100
    life(gangs, tmp_path / "second", 0, base=100)  # It reads that there is nothing left to do.
    seen = gangs.look(0)
    assert (seen.done, seen.alive) == (105, False)


@pytest.mark.parametrize(("steps", "code", "done"), [(100, -6, True), (99, -6, False), (100, 1, False)])
def test_a_process_that_is_aborted_after_its_last_step_has_done_its_work(tmp_path, steps, code, done) -> None:
    gangs = gangs_of(tmp_path)
    gangs._codes = lambda _job, _life: [code]  # type: ignore[method-assign]
    gangs._last_words = lambda _life: "terminated"  # type: ignore[method-assign]
    life(gangs, tmp_path / "only", steps, base=0)
    if done:
        seen = gangs.look(0)
        assert (seen.done, seen.alive) == (100, False)
    else:
        with pytest.raises(BackendError, match=f"job 0 ended with .{code}. after {steps} steps: terminated"):
            gangs.look(0)
