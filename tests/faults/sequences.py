"""Random sequences of overlapping faults: `python -m tests.faults.sequences --seed S --sequences N`.

For: running inside the enclosure (enclosure.py). It prints the plan of each sequence before it begins and a
line after it, and ends with exit code 1 after a violation. `--first F` begins with sequence F. `--only K`
repeats sequence K of the same seed, and `--keep 0,3` leaves only these of its faults. Not for: what a fault
is (overlapping.py), nor what must hold (watcher.py). Each sequence has its own controller and agents.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
import traceback
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import replace

from tests.faults.enclosure import HERE, ROOT
from tests.faults.fault_hosts import BACK_S, deployed, end
from tests.faults.fault_world import ViolationError, World
from tests.faults.overlapping import CONTROLLER, KINDS, Fault, Plan, Sequence, draw
from tests.faults.running_hosts import COMMANDS, HOSTS, PORT, Episode, address_for, inside
from tests.faults.watcher import SETTLE_S, Tally, Watcher

_PROXY = f"127.0.0.1:{PORT}"
_POLL_S = 0.02


def main() -> None:
    """Run the sequences. Exits with code 1 after a violation."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seed", type=int, required=True)
    arguments.add_argument("--sequences", type=int, required=True)
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--only", type=int)
    arguments.add_argument("--keep", type=lambda text: {int(number) for number in text.split(",")})
    options = arguments.parse_args()
    numbers = range(options.first, options.first + options.sequences)
    world, failed, kinds, tally = World(), 0, Counter[str](), Tally()
    done = [options.only] if options.only is not None else numbers
    try:
        for number in done:
            draws = random.Random(f"sequence-{options.seed}-{number}")
            plan = draw(draws)
            if options.keep is not None:
                plan = replace(plan, faults=tuple(plan.faults[index] for index in sorted(options.keep)))
            print(f"{number:4d} seed {options.seed}: {plan}", flush=True)
            failed += not _sequence(world, number, plan, draws, tally)
            kinds.update(fault.kind for fault in plan.faults)
    finally:
        world.close()
    print(
        f"{len(done)} sequences, {sum(kinds.values())} faults, {failed} violations; {tally}; "
        + ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    )
    sys.exit(1 if failed else 0)


def _sequence(world: World, number: int, plan: Plan, draws: random.Random, tally: Tally) -> bool:
    began_s, own = time.monotonic(), Tally()
    try:
        back_s = run(world, plan, draws, own)
    except Exception as error:
        words = str(error) if isinstance(error, ViolationError) else traceback.format_exc()
        print(f"{number:4d} VIOLATION after {own}: {words}", flush=True)
        world.clear()
        return False
    finally:
        tally.add(own)
    took_s = time.monotonic() - began_s
    print(f"{number:4d} {took_s:6.2f} s  all well {back_s:.1f} s after the last fault; {own}", flush=True)
    return True


def run(world: World, plan: Plan, draws: random.Random, tally: Tally) -> float:
    """Carry a plan out, and heal. Return how long it took from the last fault until all agents were
    registered and all containers limited, s. tally: filled. Raises ViolationError."""
    addresses = {plan.proxied: _PROXY}
    with deployed(world, addresses) as running:
        command = [sys.executable, str(HERE / "proxy.py"), _PROXY, address_for(plan.proxied)]
        with subprocess.Popen(
            [*inside(plan.proxied), *command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT
        ) as proxy:
            running.heal()
            watcher = Watcher(running)
            watcher.tally, running.check = tally, lambda: _check(running, watcher)
            watcher.start()
            sequence = Sequence(running, plan.proxied, proxy, addresses)
            try:
                _carry_out(sequence, plan)
                over_s = time.monotonic()
                _heal(sequence, watcher)
                back_s = time.monotonic() - over_s
                _watch(sequence, SETTLE_S + 1.0 if watcher.absent else 0.3)
                running.until(lambda: not watcher.absent, "the sum of limits is judged without exception")
                watcher.stop()
                running.look()
                end(running, draws)
            finally:
                watcher.stop()
                proxy.kill()
    return back_s


def _carry_out(sequence: Sequence, plan: Plan) -> None:
    """Begin and heal every fault at its time."""
    acts: dict[Fault, AbstractContextManager[None]] = {
        fault: KINDS[fault.kind].act(sequence, fault) for fault in plan.faults
    }
    moments = [(fault.begins_s, 0, fault) for fault in plan.faults]
    moments += [(fault.ends_s, 1, fault) for fault in plan.faults]
    began_s = time.monotonic()
    for at_s, ends, fault in sorted(moments, key=lambda moment: moment[:2]):
        _watch(sequence, began_s + at_s - time.monotonic())
        if ends:
            acts[fault].__exit__(None, None, None)
        else:
            acts[fault].__enter__()


def _check(running: Episode, watcher: Watcher) -> None:
    """Raise the watcher's problem, with the last lines of all processes."""
    try:
        watcher.check()
    except ViolationError as error:
        raise ViolationError(f"{error}{running.words()}") from None


def _watch(sequence: Sequence, lasts_s: float) -> None:
    """Wait. Raises ViolationError as soon as the watcher has a problem or a process has ended."""
    ends_s = time.monotonic() + lasts_s
    while True:
        sequence.running.look()
        processes = {where: sequence.process(where) for where in {CONTROLLER, *HOSTS} - sequence.down}
        for name, process in {**processes, "proxy": sequence.proxy}.items():
            if process.poll() is not None:
                raise ViolationError(f"{name} ended by itself{sequence.running.words()}")
        if time.monotonic() >= ends_s:
            return
        time.sleep(_POLL_S)


def _heal(sequence: Sequence, watcher: Watcher) -> None:
    """Wait until all containers and agents are back.

    A command that was killed after its agent had been replaced counts as finished, so its host gets a new
    agent.
    """
    running = sequence.running
    for host in sequence.bereft:
        running.until(lambda host=host: running.knows(host), f"{host} is registered")  # type: ignore[misc]
        deadline = time.monotonic() + BACK_S
        while not _whole(running, host):
            _watch(sequence, 0.1)
            if time.monotonic() > deadline:
                running.expected = {
                    name: pid for name, pid in running.expected.items() if not name.endswith(host)
                }
                sequence.down.add(host)
                running.agents[host].end()
                sequence.start(host)
                sequence.down.discard(host)
                break
    watcher.over = True
    running.heal()


def _whole(running: Episode, host: str) -> bool:
    """Return whether all containers of a host run."""
    pids = running.pids()
    return all(pids.get(f"{kind}-{host}") for kind in COMMANDS)


if __name__ == "__main__":
    main()
