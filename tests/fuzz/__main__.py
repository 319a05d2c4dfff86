"""Try damaged input on every reader: `python -m tests.fuzz --seconds 60 [--seed S] [--reader NAME]`.

Each reader runs in a child process (child.py), which this process watches: a case may take MOST_S seconds and
MOST_BYTES of memory. A case that breaks the bound is kept in the folder of findings under the reader's name
and a number. The exit code is 1 if there is any. A case's time is the CPU time of its child, because a busy
machine may stop the child for seconds. A case that waits instead of computing has _STUCK times as long.
A machine can stand still for longer than that, so a child that was ended or died reads its case once more in
another process. Only a case that breaks the bound both times is a finding.
How many cases fit into a time depends on the machine. With `--cases N` each machine tries the same ones.
"""

from __future__ import annotations

import argparse
import math
import os
import secrets
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.bound import MOST_BYTES, MOST_S, TOO_MUCH, TOO_SLOW
from tests.fuzz.readers import READERS, Reader

_START_S = 120.0
"""Longest time that a child takes to begin, s."""

_STUCK = 6
"""Longest time of a case by the clock, in units of MOST_S."""

_LOOK_S = 0.05
_MOST_FINDINGS = 20


@dataclass(slots=True)
class Turn:
    """A reader's turn. program: the child's command; cases: how many ended; busy_s: time of children without
    their imports; findings: the files that are kept, by problem."""

    reader: Reader
    folder: Path
    program: Sequence[str] = (sys.executable, "-m", "tests.fuzz.child")
    cases: int = 0
    busy_s: float = 0.0
    findings: dict[str, Path] = field(default_factory=dict)

    def take(self, seconds: float, cases: int, seed: int) -> None:
        """Try the reader until `seconds` or `cases` are over. A child that dies is followed by another."""
        while (
            (left_s := seconds - self.busy_s) > 0
            and self.cases < cases
            and len(self.findings) < _MOST_FINDINGS
        ):
            with tempfile.TemporaryDirectory(prefix="twinbed-fuzz-") as work:
                broken = self._watch(seed, left_s, cases - self.cases, Path(work))
                if broken:
                    broken = self._watch(seed, left_s, 1, Path(work), "again")
                self.cases += bool(broken)
                self._keep(broken, Path(work))
            seed += 1

    def _watch(self, seed: int, seconds: float, cases: int, work: Path, *again: str) -> str:
        """Watch one child. Return why it was ended or died; "" if its time or its cases were over."""
        command = [*self.program, self.reader.name, str(seed), str(seconds), str(cases), str(work), *again]
        with (work / "stderr").open("wb") as errors:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        began_s: float | None = None
        computed_s, most_s = 0.0, _START_S
        try:
            for line, waited_s in _lines(child):
                if line == "ready":
                    began_s = time.monotonic()
                elif line.startswith(("ok", "bad ")):
                    self.cases += 1
                    self._keep(line[4:], work)
                    if line != "ok":
                        _let_go_on(child)
                if line:
                    computed_s = _cpu_s(child.pid)
                    most_s = _START_S if began_s is None else _STUCK * MOST_S
                elif waited_s > most_s or (began_s and _cpu_s(child.pid) - computed_s > MOST_S):
                    return TOO_SLOW
                if _peak_bytes(child.pid) > MOST_BYTES:
                    return TOO_MUCH
            return "" if child.wait() == 0 else f"ends the process with {child.returncode}"
        finally:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()
            self.busy_s += time.monotonic() - began_s if began_s is not None else seconds

    def _keep(self, problem: str, work: Path) -> None:
        # A place in the code that fails is one finding.
        kind = problem.split(": ", 1)[0]
        if not problem or kind in self.findings or len(self.findings) == _MOST_FINDINGS:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = self.folder / f"{self.reader.name}-{len(self.findings) + 1}{self.reader.suffix}"
        shutil.copy(work / f"case{self.reader.suffix}", kept)
        self.findings[kind] = kept
        print(f"  {kept}: {problem}", flush=True)


def _let_go_on(child: subprocess.Popen[bytes]) -> None:
    """Tell a child that its case was kept."""
    assert child.stdin is not None
    with suppress(BrokenPipeError):
        child.stdin.write(b"\n")
        child.stdin.flush()


def _lines(child: subprocess.Popen[bytes]) -> Iterator[tuple[str, float]]:
    """Yield each line with 0, and every _LOOK_S without a line "" with the seconds since the last line."""
    assert child.stdout is not None
    last_s = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(_LOOK_S):
                yield "", time.monotonic() - last_s
                continue
            line = child.stdout.readline()
            if not line:
                return
            last_s = time.monotonic()
            yield line.decode(errors="replace").rstrip("\n"), 0.0


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, s; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def main() -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all readers together, s")
    parser.add_argument("--cases", type=int, help="end each reader after so many cases instead of by time")
    parser.add_argument("--seed", type=int, default=None, help="number from which the cases follow")
    parser.add_argument("--reader", choices=sorted(READERS), help="only this reader")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="folder for findings")
    options = parser.parse_args()
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    readers = [READERS[options.reader]] if options.reader else list(READERS.values())
    side_by_side = min(len(readers), os.cpu_count() or 1)
    seconds = math.inf if options.cases else options.seconds * side_by_side / len(readers)

    def taken(reader: Reader) -> dict[str, Path]:
        turn = Turn(reader, options.findings)
        turn.take(seconds, options.cases or sys.maxsize, seed)
        print(f"{reader.name}: {turn.cases} cases, {len(turn.findings)} findings, seed {seed}", flush=True)
        return turn.findings

    with ThreadPoolExecutor(side_by_side) as pool:
        findings = [item for found in pool.map(taken, readers) for item in found.items()]
    for kind, kept in findings:
        print(f"{kept}: {kind}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
