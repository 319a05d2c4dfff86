"""Whose is it? The mark that everything this package makes carries, and whether its maker still lives.

For: naming a run so that a later start can tell a leftover from a run in progress. Not for: removing
anything (cgroups, network). A run's name holds its recorder's process id and that process's start time
(/proc/PID/stat, field 22: clock ticks since boot), so a reused process id is not mistaken for it.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

MARK = "twinbed"
"""Directory above every run's cgroups."""

LINK_PREFIX = "tb-"
"""How every network namespace and link of ours begins."""

_RUN = re.compile(r"run-(?P<pid>[0-9]+)-(?P<start>[0-9]+)-[0-9]+")
_numbers = itertools.count()


def new_run() -> str:
    """A name for a run of this process: `run-<pid>-<start ticks>-<count>`; no other run has it."""
    pid = os.getpid()
    return f"run-{pid}-{_start_ticks(pid)}-{next(_numbers)}"


def is_run(name: str) -> bool:
    """Whether `name` has the form that `new_run` gives."""
    return _RUN.fullmatch(name) is not None


def is_alive(run: str) -> bool:
    """Whether the process that named `run` still exists; False for a name that is not a run's."""
    match = _RUN.fullmatch(run)
    return match is not None and _start_ticks(int(match["pid"])) == int(match["start"])


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses and may hold spaces and parentheses itself.
    return int(stat.rpartition(")")[2].split()[19])
