"""What this machine tells about its processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.containers.machine import switches_of


@pytest.mark.skipif(not Path("/proc/self/sched").exists(), reason="this kernel has no /proc/PID/sched")
def test_switches_are_those_of_the_processes_with_all_words():
    cpus = sorted(os.sched_getaffinity(0))[:2]
    sleep = f"for cpu in {cpus}: os.sched_setaffinity(0, [cpu]); time.sleep(0.001)"
    code = f"import os, sys, time\n{sleep}\nprint('slept', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, "a-sleeper", "that-is-asked"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sleeper:
        assert sleeper.stdout.readline() == "slept\n"
        moved, switched = switches_of("a-sleeper", "that-is-asked")
        sleeper.stdin.close()
    assert moved >= len(cpus) - 1
    assert switched >= len(cpus)
    assert switches_of("a-sleeper", "that-nobody-has") == (0, 0)
