"""The tunnel program's maps fit its structs, are read whole in batches, and are found by the program's id."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kernel import tunnel as tunnels
from kernel.tunnel import KEY, RULE, Tunnel
from twinbed import BackendError

MANY = 40_000
"""More rules than one batch reads."""


@pytest.fixture
def loadable() -> None:
    if os.geteuid() != 0:
        pytest.skip("loading a tc program needs root")
    try:
        Tunnel.load(1).close()
    except BackendError as error:
        pytest.skip(str(error))


def made(count: int, remote: int = 1):
    keys, rules = np.zeros(count, KEY), np.zeros(count, RULE)
    keys["device"], rules["handle"], rules["remote"] = np.arange(count), np.arange(count), remote
    return keys, rules


def test_records_are_as_long_as_the_structs() -> None:
    assert (KEY.itemsize, RULE.itemsize) == (12, 24)


def test_a_program_whose_map_cannot_be_asked_leaves_no_descriptor_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: int) -> None:
        raise BackendError("asking about a map was refused")

    monkeypatch.setattr(tunnels, "library", lambda: None)
    monkeypatch.setattr(tunnels, "_map_info", refuse)
    before = sorted(Path("/proc/self/fd").iterdir())
    program, rules = (os.open("/dev/null", os.O_RDONLY) for _ in range(2))
    with pytest.raises(BackendError, match="asking about a map"):
        Tunnel(program, {"tunnel_rules": rules})
    assert sorted(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.root
def test_rules_are_written_read_and_removed_by_the_thousand(loadable: None) -> None:
    with Tunnel.load(MANY) as tunnel:
        keys, rules = made(MANY)
        assert tunnel.write(keys, rules) == (MANY, 0)
        read_keys, read_rules = tunnel.read()
        order = np.argsort(read_keys["device"])
        assert np.array_equal(read_keys[order], keys)
        assert np.array_equal(read_rules[order], rules)

        assert tunnel.write(*made(10, remote=2)) == (10, 0)
        assert np.count_nonzero(tunnel.read()[1]["remote"] == 2) == 10
        tunnel.remove(keys[::2])
        tunnel.remove(keys[:100])
        assert len(tunnel.read()[0]) == MANY // 2 - 50


@pytest.mark.root
def test_another_process_finds_the_maps_by_the_programs_number(loadable: None) -> None:
    with Tunnel.load(7) as tunnel:
        tunnel.write(*made(3))
        adopted = Tunnel.adopt(tunnel.program_id)
        assert adopted is not None
        with adopted:
            assert (adopted.room, len(adopted.read()[0])) == (7, 3)
            assert adopted.frames() == (0, 0)


@pytest.mark.root
def test_a_closed_one_may_be_closed_again(loadable: None) -> None:
    tunnel = Tunnel.load(1)
    tunnel.close()
    tunnel.close()
