"""Random faults on a real fabric: it converges, other programs' things stay, and nothing is left over.

`make test-faults` runs 100 sequences of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.fabric import doctor
from tests.faults import enclosure
from twinbed import BackendError

SEQUENCES = int(os.environ.get("FAULTS", "1"))
SEED = int(os.environ.get("FAULTS_SEED", "1000"))
"""Seed whose first sequence kills daemons and an agent, and removes rules."""

MOST_S = 60
"""Longest time of a sequence with all waiting after it, s. Usually it takes a few seconds."""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(MOST_S * (SEQUENCES + 4))
def test_a_fabric_converges_after_random_faults_and_leaves_nothing(cgroups: None, tmp_path: Path) -> None:
    reason = enclosure.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        doctor.require()
    except BackendError as error:
        pytest.skip(str(error))
    program = ("-u", "-m", "tests.faults.fabric_campaign", "--seed", str(SEED), "--runs", str(SEQUENCES))
    assert enclosure.run(program, tmp_path, MOST_S * (SEQUENCES + 2)) == 0
