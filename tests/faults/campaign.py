"""Injects random faults, one after the other: `python -m tests.faults.campaign --seed S --runs N --hosts M`.

For: running inside the enclosure (enclosure.py). It prints a line for each case, and ends with exit code 1
after a violation. `--only K` repeats case K of the same seed, on one host. Not for: running outside the
enclosure, where it would see things that are not its own.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
import traceback
from collections import Counter

from tests.faults import fault_hosts, one_host_faults
from tests.faults.fault_world import ViolationError, World

EPISODE = 10
"""Faults that one controller and its agents live through before they are ended and looked at."""


def main() -> None:
    """Run the campaign. Exits with code 1 after a violation."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--runs", type=int, required=True)
    arguments.add_argument("--hosts", type=int, required=True)
    arguments.add_argument("--only", type=int)
    given = arguments.parse_args()
    world, failed, kinds = World(), 0, Counter[str]()
    try:
        for number in range(given.runs):
            if given.only not in (None, number):
                continue
            failed += not _one_host(world, given.seed, number, kinds)
        done = 0
        while done < given.hosts and given.only is None:
            count = min(EPISODE, given.hosts - done)
            failed += not _hosts(world, given.seed, given.runs + done, count, kinds)
            done += count
    finally:
        world.close()
    print(
        f"{sum(kinds.values())} faults, {failed} violations; "
        + ", ".join(f"{k} {n}" for k, n in kinds.items())
    )
    sys.exit(1 if failed else 0)


def _one_host(world: World, seed: int, number: int, kinds: Counter[str]) -> bool:
    draws = random.Random(f"{seed}-{number}")
    weights = one_host_faults.FAULTS
    (fault,) = draws.choices(list(weights), list(weights.values()))
    kinds[fault.__name__] += 1
    began = time.monotonic()
    try:
        done = one_host_faults.run(fault, world, draws)
    except Exception as error:
        _say(number, began, f"VIOLATION {fault.__name__}: {_words(error)}")
        world.clear()
        return False
    _say(number, began, done)
    return True


def _hosts(world: World, seed: int, first: int, count: int, kinds: Counter[str]) -> bool:
    draws = random.Random(f"{seed}-{first}")
    last, numbers = [time.monotonic()], itertools.count(first)

    def say(kind: str, done: str) -> None:
        _say(next(numbers), last[0], done)
        kinds[kind] += 1
        last[0] = time.monotonic()

    try:
        fault_hosts.episode(world, draws, count, say)
    except Exception as error:
        _say(next(numbers), last[0], f"VIOLATION on hosts: {_words(error)}")
        world.clear()
        return False
    return True


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, ViolationError) else traceback.format_exc()


def _say(number: int, began: float, text: str) -> None:
    print(f"{number:4d} {time.monotonic() - began:6.2f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
