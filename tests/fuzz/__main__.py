"""Try damaged input on every reader: `python -m tests.fuzz --seconds 60 [--seed S] [--reader NAME]`.

Each reader runs in a child process (child.py), which this process watches: a case may take MOST_S seconds and
MOST_BYTES of memory. A case that breaks the bound is kept in the folder of findings under the reader's name and a
number. The exit code is 1 if there is any.
"""

from __future__ import annotations

import argparse
import secrets
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.readers import READERS, Reader

MOST_S = 10.0
"""Longest time of a case, s."""

MOST_BYTES = 1_000_000_000
"""Most memory of a reader's process while it reads, bytes: the largest resident set, its modules included."""

_START_S = 120.0
"""Longest time that a child takes to begin, s."""

_LOOK_S = 0.05
_MOST_FINDINGS = 20


@dataclass(slots=True)
class Tally:
    """What came of a reader's cases. cases: how many ended; findings: the problems, each once."""

    cases: int = 0
    findings: dict[str, Path] = field(default_factory=dict)


def tried(reader: Reader, seconds: float, seed: int, folder: Path) -> Tally:
    """Try a reader for so many seconds; a child that dies or must be ended is followed by another."""
    tally = Tally()
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0 and len(tally.findings) < _MOST_FINDINGS:
        with tempfile.TemporaryDirectory(prefix="twinbed-fuzz-") as work:
            began_s = time.monotonic()
            problem = _watched(reader, seed, left_s, Path(work), tally, folder)
            if problem:
                _keep(reader, problem, Path(work), tally, folder)
            # Imports do not count, and a child that ends in time ends the reader's turn.
            end_s = end_s + (time.monotonic() - began_s - left_s) if problem is None else end_s
            if problem is None:
                break
        seed += 1
    return tally


def _watched(
    reader: Reader, seed: int, seconds: float, work: Path, tally: Tally, folder: Path
) -> str | None:
    """Watch one child. Return why it was ended or died; None if its time was over."""
    command = [sys.executable, "-m", "tests.fuzz.child", reader.name, str(seed), str(seconds), str(work)]
    errors = (work / "stderr").open("wb")
    with errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as child:
        try:
            return _followed(child, reader, work, tally, folder)
        finally:
            child.kill()


def _followed(
    child: subprocess.Popen[bytes], reader: Reader, work: Path, tally: Tally, folder: Path
) -> str | None:
    assert child.stdout is not None
    deadline_s = time.monotonic() + _START_S
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if selector.select(_LOOK_S):
                line = child.stdout.readline().decode(errors="replace").rstrip("\n")
                if not line:
                    code = child.wait()
                    return None if code == 0 else f"the process ended with {code}"
                if line == "begin":
                    deadline_s = time.monotonic() + MOST_S
                    continue
                tally.cases += line != "ready"
                if line.startswith("bad "):
                    _keep(reader, line.removeprefix("bad "), work, tally, folder)
                # Beyond this the next case is being made.
                deadline_s = time.monotonic() + _START_S
            if time.monotonic() > deadline_s:
                return f"took more than {MOST_S:g} s"
            peak = _peak_bytes(child.pid)
            if peak > MOST_BYTES:
                return f"took more than {MOST_BYTES / 1e9:g} GB of memory"


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def _keep(reader: Reader, problem: str, work: Path, tally: Tally, folder: Path) -> None:
    # One place in the code that fails is one finding.
    kind = problem.split(": ", 1)[0] if " in " in problem else problem[:60]
    if kind in tally.findings or len(tally.findings) >= _MOST_FINDINGS:
        return
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{reader.name}-{len(tally.findings) + 1}{reader.suffix}"
    shutil.copy(work / f"case{reader.suffix}", kept)
    tally.findings[kind] = kept
    print(f"  {kept}: {problem}", flush=True)


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all readers together, s")
    parser.add_argument("--seed", type=int, default=None, help="number from which the cases follow")
    parser.add_argument("--reader", choices=sorted(READERS), help="only this reader")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for findings")
    options = parser.parse_args()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    readers = [READERS[options.reader]] if options.reader else list(READERS.values())
    findings = 0
    for reader in readers:
        tally = tried(reader, options.seconds / len(readers), seed, options.findings)
        findings += len(tally.findings)
        print(f"{reader.name}: {tally.cases} cases, {len(tally.findings)} findings, seed {seed}", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
