"""What CI (environment variable `CI`) demands of a test run besides passing: no unexpected skip, few reruns.

For: a pytest plugin. A skip that `allowed_skips.toml` does not list for this machine fails the run, because a
test that silently stops running protects nothing. More than MOST_RERUNS reruns fail it, too: one is chance,
three are a defect. Not for: which tests are tried again (tools/test, and tests/testbed/test_vm.py).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

MOST_RERUNS = 2
"""Reruns that CI accepts in all its test runs together."""

ALLOWED = Path(__file__).with_name("allowed_skips.toml")


def machine() -> str:
    """Return what the tests depend on: the user, the cgroup version and whether the kernel loads modules."""
    user = "root" if os.geteuid() == 0 else "user"
    version = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    modules = "modules" if Path("/proc/modules").exists() else "no modules"
    return f"{user}, cgroup {version}, {modules}"


def unexpected(reasons: Sequence[tuple[str, str]], name: str, allowed: Path = ALLOWED) -> list[str]:
    """Return a line per skip that is not allowed on the machine `name`. A machine without a list allows all.

    reasons: (test, reason) of each skip.
    """
    lists: dict[str, dict[str, list[str]]] = tomllib.loads(allowed.read_text())
    if name not in lists:
        return []
    patterns = [re.compile(text) for table in ("everywhere", name) for text in lists[table]["reasons"]]
    return [
        f"{test}: {reason}"
        for test, reason in reasons
        if not any(pattern.fullmatch(reason) for pattern in patterns)
    ]


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a module was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def too_many(reruns: Sequence[str], earlier: Path | None) -> list[str]:
    """Return a line when this run's reruns and those noted in `earlier` are too many; note this run's there.

    earlier: a file with a test per line, shared by the test runs of one `make test`; None: there is no other.
    """
    if earlier is not None:
        with earlier.open("a") as handle:
            handle.writelines(f"{test}\n" for test in reruns)
        reruns = earlier.read_text().splitlines()
    if len(reruns) <= MOST_RERUNS:
        return []
    return [
        f"{len(reruns)} tests passed only when they ran again, more than {MOST_RERUNS}: {', '.join(reruns)}"
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of CI that passed but skipped or repeated what it should not have."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None or hasattr(session.config, "workerinput"):
        return
    skips = [
        (report.nodeid, reason_of(report))
        for report in reporter.stats.get("skipped", ())
        if not hasattr(report, "wasxfail")
    ]
    noted = os.environ.get("TWINBED_RERUNS")
    reruns = [report.nodeid for report in reporter.stats.get("rerun", ())]
    problems = [f"unexpected skip: {line}" for line in unexpected(skips, machine())]
    problems += too_many(reruns, Path(noted) if noted else None)
    session.config.stash[_PROBLEMS] = problems
    if problems and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show why a run of CI failed although its tests passed."""
    for line in config.stash.get(_PROBLEMS, []):
        terminalreporter.section(f"CI: {line}")


_PROBLEMS = pytest.StashKey[list[str]]()
