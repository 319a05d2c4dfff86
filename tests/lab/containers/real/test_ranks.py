"""Which containers of a job the twin lets wait for each other."""

from __future__ import annotations

import subprocess
import sys

from lab.containers.input.recording import Request
from lab.containers.real.recorded import ranks_of
from testbed.containers.host.container import ContainerSpec


def spec(name: str, **env: str) -> ContainerSpec:
    return ContainerSpec(name, ("python", "train.py"), env=env)


def test_ranks_of_one_world_wait_for_each_other_from_their_first_connection() -> None:
    specs = (
        spec("a", RANK="0", WORLD_SIZE="2", MASTER_PORT="1"),
        spec("store"),
        spec("b", RANK="1", WORLD_SIZE="2", MASTER_PORT="1"),
        spec("c", RANK="0", WORLD_SIZE="2", MASTER_PORT="2"),
        spec("d", RANK="1", WORLD_SIZE="2", MASTER_PORT="2"),
    )
    facts = {f"connected_s.{name}": at_s for name, at_s in zip("abcd", ("1.4", "1.5", "2", "2"), strict=True)}
    ranks, notes = ranks_of(Request("job", specs), facts, period_s=0.1)
    assert ranks is not None
    assert ranks.of.tolist() == [0, -1, 0, 1, 1]
    assert (ranks.meets * 0.1).round(9).tolist() == [1.4, 0.0, 1.5, 2.0, 2.0]
    assert notes[0] == "a and b are ranks of one job: they wait for each other."


def test_ranks_that_never_connected_are_said_not_to_wait() -> None:
    specs = (spec("a", RANK="0", WORLD_SIZE="2"), spec("b", RANK="1", WORLD_SIZE="2"))
    ranks, notes = ranks_of(Request("job", specs), {"connected_s.a": "1.0"}, period_s=0.1)
    assert ranks is None
    assert "a and b were never seen connected" in notes[0]


def test_a_rank_alone_waits_for_nobody() -> None:
    ranks, notes = ranks_of(Request("job", (spec("a", RANK="0", WORLD_SIZE="1"),)), {}, period_s=0.1)
    assert (ranks, notes) == (None, ())


def test_only_jobs_with_ranks_need_psutil() -> None:
    program = "import sys; sys.modules['psutil'] = None; import lab.containers.real.recorded"
    subprocess.run([sys.executable, "-c", program], check=True)
