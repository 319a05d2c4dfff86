"""The load of this machine as the emulated clusters see it."""

import time
from pathlib import Path

import pytest

from testbed.cloud import emulated


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat: not Linux")
def test_time_spent_here_counts_as_busy():
    before, until = emulated.cpu_busy_s(), time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert emulated.cpu_busy_s() - before >= 0.2
