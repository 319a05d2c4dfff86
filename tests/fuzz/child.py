"""One reader, tried for a time or a number of cases. __main__.py runs it and watches its time and memory.

For: `python -m tests.fuzz.child READER SEED SECONDS CASES FOLDER [again]`. The case that runs is
FOLDER/case*. With `again`, the case that is in the folder runs, and no other. Lines on the standard output:
`ready` before the first case, and for each case that ended `ok`, or `bad PROBLEM`. After such a case it waits
for a line on the standard input, until which the case stays in the folder.
"""

from __future__ import annotations

import logging
import resource
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.bound import MOST_BYTES, TOO_MUCH, problem
from tests.fuzz.mutations import damaged
from tests.fuzz.readers import READERS, Reader


def main(name: str, number: int, seconds: float, cases: int, folder: Path, again: bool) -> None:
    """Try damaged input on one reader until `seconds` or `cases` are over; or, with `again`, one case."""
    logging.disable()
    reader = READERS[name]
    case = folder / f"case{reader.suffix}"
    kept = case.read_bytes() if again and case.exists() else None
    # The first call imports the reader, which is no part of a case.
    seeds = reader.seeds()
    case.write_bytes(seeds[-1])
    problem(reader, case)
    print("ready", flush=True)
    if kept is not None:
        _judge(reader, case, kept)
        return
    end_s = time.monotonic() + seconds
    left = iter(range(cases))

    @seed(number)
    @settings(
        max_examples=1_000_000,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=damaged(seeds))
    def tried(data: bytes) -> None:
        if time.monotonic() > end_s or next(left, None) is None:
            # Hypothesis has no other way to end early.
            raise SystemExit
        if _judge(reader, case, data):
            raise SystemExit

    tried()


def _judge(reader: Reader, case: Path, data: bytes) -> bool:
    """Let the reader read the data, and print what is wrong. Return whether the process has taken too much
    memory: the high-water mark never falls, so that the next case could not be told from this one."""
    case.write_bytes(data)
    found = problem(reader, case)
    full = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_BYTES
    found = TOO_MUCH if full else found
    print(f"bad {found}" if found else "ok", flush=True)
    if found:
        sys.stdin.readline()
    return full


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        float(sys.argv[3]),
        int(sys.argv[4]),
        Path(sys.argv[5]),
        sys.argv[6:] == ["again"],
    )
