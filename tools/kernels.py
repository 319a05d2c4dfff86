"""Compiles the twin's kernels by asking a small question of each engine: python tools/kernels.py.

Numba caches the compiled kernels beside the code. Otherwise each of the processes that run tests side by side
would compile the same kernels.
"""

import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from lab.cli.main import call

FEW = ("--set", "seeds=[0]", "--set", "policies=[thorn]")
QUESTIONS = (
    ("whatif", "bursty_service", "--policy", "escra,static"),
    ("run", "hipster_shop", "--set", "services.duration_s=2", "--set", "policies=[escra]"),
    ("advise", "bursty_service"),
    ("run", "failover"),
    ("run", "T1", *FEW),
    ("run", "fleet", "--set", "fabric.fleet.days=2", *FEW),
    ("run", "planner", "--set", "fabric.fleet.days=2", *FEW),
    ("run", "market", "--set", "seeds=[0]", "--set", "policies=[planned]"),
    ("run", "cluster", "--set", "policies=[tiresias]"),
)

if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as store,
        Path("/dev/null").open("w") as nowhere,
        redirect_stdout(nowhere),
    ):
        os.environ["TWINBED_STORE"] = store
        sys.exit(max(call([*question, "--no-progress"]) for question in QUESTIONS))
