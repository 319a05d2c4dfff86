"""Random faults: nothing is left over, nobody is killed by us, limits add up; `make test-faults` runs 100,
and 200 sequences of faults that overlap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import enclosure

FAULTS = int(os.environ.get("FAULTS", "6"))
"""How many."""

SEED = int(os.environ.get("FAULTS_SEED", "378"))
HOSTS_SHARE = 0.4
"""Of them under a controller and two agents; the others under a run on one host."""

MOST_S = 60
"""What a fault may take with all that is waited for after it; a few seconds, as a rule."""

SEQUENCES = int(os.environ.get("SEQUENCES", "0"))
"""Number of sequences of overlapping faults, of which each takes 15 to 30 s."""

SEQUENCES_SEED = int(os.environ.get("FAULTS_SEED", "2779"))
"""Seed of the sequences."""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(MOST_S * (FAULTS + 4))
def test_random_faults_leave_nothing_and_kill_nobody(cgroups: None, tmp_path: Path) -> None:
    reason = enclosure.why_not()
    if reason is not None:
        pytest.skip(reason)
    on_hosts = round(HOSTS_SHARE * FAULTS)
    counts = ("--runs", str(FAULTS - on_hosts), "--hosts", str(on_hosts))
    program = ("-u", "-m", "tests.faults.campaign", "--seed", str(SEED), *counts)
    assert enclosure.run(program, tmp_path, MOST_S * (FAULTS + 2)) == 0


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(2 * MOST_S * (SEQUENCES + 2))
def test_limits_add_up_at_all_times_while_faults_overlap(cgroups: None, tmp_path: Path) -> None:
    if SEQUENCES == 0:
        pytest.skip("sequences of faults take minutes: make test-faults")
    reason = enclosure.why_not()
    if reason is not None:
        pytest.skip(reason)
    program = ("-u", "-m", "tests.faults.sequences", "--seed", str(SEQUENCES_SEED))
    counts = ("--sequences", str(SEQUENCES))
    assert enclosure.run((*program, *counts), tmp_path, 2 * MOST_S * (SEQUENCES + 1)) == 0
