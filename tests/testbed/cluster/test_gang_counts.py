"""How many steps of a job count after it was killed, without any process."""

import math
from pathlib import Path

import pytest

from testbed.cluster.gangs import Gangs, Life, Training
from twinbed import BackendError


def life(gangs: Gangs, folder: Path, steps: int, base: int, leaving: float | None = None) -> None:
    """Put a life without processes there, which has recorded so many steps."""
    folder.mkdir()
    (folder / "0.steps").write_bytes(bytes(8 * steps))
    gangs._lives[0] = Life(base, math.inf, [], folder, leaving)


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
