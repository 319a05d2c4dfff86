"""Run random sequences of faults on a real fabric: `python -m tests.faults.fabric_campaign --seed S --runs
N`.

For: running inside the enclosure (enclosure.py). It prints a line per sequence and ends with exit code 1
after a violation. `--only K` repeats the episode with sequence K of the same seed. Not for: running outside
the enclosure, where it would see things that are not its own.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter

from testbed.fabric import leftovers
from tests.faults.fabric_steps import STEPS
from tests.faults.fabric_world import NAME, Episode, FabricWorld, wait_for
from tests.faults.fault_world import ViolationError
from twinbed import TwinbedError

EPISODE = 10
"""Number of sequences with one fabric, before it is removed and its leftovers are looked for."""

MOST_STEPS = 3
_MAKER = (
    "from testbed.fabric.model import Plan\n"
    "from testbed.fabric.up import up\n"
    f"up(Plan({NAME!r}, real_time=False))\n"
    "input()\n"
)
_UP_S = 8.0
_STANDSTILL_S = 60.0
"""Time without a line after which the campaign prints where it stands, s."""


def main() -> None:
    """Run the campaign. Exits with code 1 after a violation."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--runs", type=int, required=True)
    arguments.add_argument("--only", type=int)
    options = arguments.parse_args()
    faulthandler.dump_traceback_later(_STANDSTILL_S, repeat=True)
    world, failed, kinds = FabricWorld(), 0, Counter[str]()
    try:
        for first in range(0, options.runs, EPISODE):
            count = min(EPISODE, options.runs - first)
            if options.only is None or first <= options.only < first + count:
                failed += not _episode(world, options.seed, first, count, kinds)
    finally:
        world.close()
    summary = ", ".join(f"{kind} {number}" for kind, number in sorted(kinds.items()))
    print(f"{options.runs} sequences, {sum(kinds.values())} faults, {failed} violations; {summary}")
    sys.exit(1 if failed else 0)


def _episode(world: FabricWorld, seed: int, first: int, count: int, kinds: Counter[str]) -> bool:
    draws = random.Random(f"fabric-{seed}-{first}")
    began = time.monotonic()
    try:
        if first % (2 * EPISODE):
            _kill_maker(draws)
            world.check_nothing_left()
        episode = Episode(draws.choice((2, 3)), 2)
        _say(first, began, f"{len(episode.fabric.hosts)} hosts up, agents ready")
        for number in range(first, first + count):
            began = time.monotonic()
            steps = draws.choices(list(STEPS), list(STEPS.values()), k=draws.randint(1, MOST_STEPS))
            done = []
            for step in steps:
                kinds[step.__name__] += 1
                done.append(step(episode, draws))
            episode.heal()
            _say(number, began, "; ".join(done))
        began = time.monotonic()
        episode.end()
        world.check_nothing_left()
        _say(first + count - 1, began, "down, nothing left")
    except Exception as error:
        known = isinstance(error, ViolationError | TwinbedError)
        message = str(error) if known else traceback.format_exc()
        _say(first, began, f"VIOLATION: {message}")
        leftovers.down(everything=True)
        leftovers.remove(NAME)
        world.clear()
        return False
    return True


def _kill_maker(draws: random.Random) -> None:
    """Kill a process that makes a fabric, at a random moment, and remove the fabric."""
    with subprocess.Popen([sys.executable, "-c", _MAKER], stdin=subprocess.PIPE) as maker:
        wait_for(draws.uniform(0.0, _UP_S), lambda: maker.poll() is not None)
        maker.send_signal(signal.SIGKILL)
    leftovers.down()


def _say(number: int, began: float, text: str) -> None:
    faulthandler.dump_traceback_later(_STANDSTILL_S, repeat=True)
    print(f"{number:4d} {time.monotonic() - began:6.2f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
