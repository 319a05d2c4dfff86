"""Changes the code in small ways and counts how many changes a test notices.

Usage: python tools/mutants.py [--sample N] [--seed S] [MODULE …]
It runs in the repository and needs the extra `mutants`.
MODULE: dotted name with * for any text, for example 'lab.runs.*'; default: all that [tool.mutmut] selects.
N: most changes of a module, drawn with the seed; default: all. mutmut makes the changes. Its own runs would
first change every module and run all tests, and would then fork a process in which gRPC's threads run.

The last commit is tried, in the copy build/mutants. The tests of a module are those in the folder of its
name and, if none of them imports it, those of the selected folders that do, or that import what imports it.
All these tests run once with coverage. After a change, the tests that ran the changed line run first, then
the other tests of their files. A change that a test noticed is not tried again. A change that survived is
tried again at the next commit. A new run continues one that was stopped. Prints a line per module and writes
the survivors to build/mutants.txt. The exit code is 1 if less than 90 % were noticed.
"""

import argparse
import difflib
import fnmatch
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import coverage
import libcst
import libcst.matchers
import pytest
from mutmut.configuration import config
from mutmut.mutation.file_mutation import create_mutations

BUILD = Path(os.environ.setdefault("TWINBED_MUTANTS", str(Path.cwd() / "build")))
COPY = BUILD / "mutants"
AIM = 0.90
DTYPE = re.compile(r"(dtype=)?(dtype|np\.(bool_|u?int\d+|float\d+))|dtype=\w+")
QUICK_S = 0.5
"""Longer tests run after all others."""
SLOWER, SLACK_S = 5, 20.0
"""A test fails after SLOWER times the longest time of the tests without the change, plus SLACK_S, s."""

lengths: dict[str, float] = {}
"""In a run of tests, which has this file as a plugin: test that passed → its length in s."""


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Make Hypothesis look for the same examples each time, and not shrink them."""
    with suppress(ImportError):
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), phases=phases, derandomize=True, database=None)
        settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Tell coverage which test runs."""
    if measuring := coverage.Coverage.current():
        measuring.switch_context(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the tests that pass, and their lengths."""
    if report.when == "call" and report.passed:
        lengths[report.nodeid] = report.duration


def pytest_sessionfinish() -> None:
    """Write down the tests that passed, with their lengths."""
    (BUILD / "mutants.lengths").write_text(json.dumps(lengths))


def main() -> int:
    """Try the changes and print the result. Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="*", default=["*"])
    asked = parser.parse_args()
    if not COPY.exists():
        subprocess.run(["git", "clone", "--quiet", ".", COPY], check=True)
    for step in (["fetch", "--quiet", Path.cwd(), "HEAD"], ["reset", "--quiet", "--hard", "FETCH_HEAD"]):
        subprocess.run(["git", *step], cwd=COPY, check=True)
    os.chdir(COPY)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    results = _read("mutants.results")
    survivors, total = [], 0
    for path in sorted(path for folder in config().source_paths for path in folder.rglob("*.py")):
        module = ".".join(path.with_suffix("").parts)
        if not (
            config().should_mutate(path) and any(fnmatch.fnmatch(module, name) for name in asked.modules)
        ):
            continue
        texts = list(islice(changed(path, asked.seed), asked.sample))
        survived = []
        for text in texts:
            key = hashlib.sha256(text.encode()).hexdigest()
            if results.get(key) not in ("noticed", commit):
                results[key] = "noticed" if noticed(path, text) else commit
                (BUILD / "mutants.results").write_text(json.dumps(results))
            if results[key] == commit:
                survived.append(_change(path, text))
                print(survived[-1], flush=True)
        print(f"{module}: {len(texts) - len(survived)} of {len(texts)} noticed", flush=True)
        survivors, total = survivors + survived, total + len(texts)
        (BUILD / "mutants.txt").write_text("\n".join(survivors))
    share = 1 - len(survivors) / max(total, 1)
    print(f"all: {total - len(survivors)} of {total} noticed ({share:.0%}); see {BUILD / 'mutants.txt'}")
    return 0 if total and share >= AIM else 1


def changed(path: Path, seed: int) -> Iterator[str]:
    """Yield versions of the module's text, each with one change in a function, in an order that the seed
    decides.

    Some text stays unchanged, because no test should check it. This is text for people (strings with a space,
    and the message of a raised error), and the dtype given to NumPy, because NumPy otherwise takes the dtype
    from the values.
    """
    code = path.read_text()
    module, mutations, _, _ = create_mutations(str(path), code)
    random.Random(seed).shuffle(mutations)
    raised = [node.exc for node in libcst.matchers.findall(module, libcst.matchers.Raise())]
    seen = {code}
    for mutation in mutations:
        old, new = mutation.original_node, mutation.mutated_node
        if not isinstance(mutation.contained_by_top_level_function, libcst.FunctionDef) or old in raised:
            continue
        if isinstance(old, libcst.SimpleString | libcst.FormattedString) and " " in module.code_for_node(old):
            continue
        if isinstance(old, libcst.Call) and isinstance(new, libcst.Call):
            pairs = zip_longest(old.args, new.args)
            arg = next((before for before, after in pairs if before is not after), None)
            if arg and DTYPE.fullmatch(
                module.code_for_node(arg.with_changes(comma=libcst.MaybeSentinel.DEFAULT))
            ):
                continue
        text = module.deep_replace(old, mutation.mutated_node).code  # type: ignore[union-attr]
        if text not in seen:
            seen.add(text)
            yield text


def noticed(path: Path, text: str) -> bool:
    """Return whether a test fails if the module has this text."""
    before = path.read_text()
    line = int(re.findall(r"^@@ -(\d+)", _change(path, text), re.M)[0])
    lines, all_lengths = measured(path.parent)
    by_line = lines.contexts_by_lineno(str(path.absolute()))
    # A line inside a long expression has no event of its own.
    during = by_line.get(max((number for number in by_line if number <= line), default=line), [])
    # A line that ran only during an import has no test of its own, so all tests count.
    ran = {test for test in during if test in all_lengths} or {*(all_lengths if "" in during else ())}
    by_file: dict[str, float] = defaultdict(float)
    for test in ran:
        by_file[_file(test)] += all_lengths[test]
    # A fixture that several tests share ran only in the first of these tests.
    tests = sorted(
        (test for test in all_lengths if _file(test) in by_file),
        key=lambda test: (test not in ran, all_lengths[test] > QUICK_S, by_file[_file(test)], test),
    )
    if not tests:
        return False
    limit_s = SLOWER * max(all_lengths[test] for test in tests) + SLACK_S
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()  # its date may be that of the change
    try:
        path.write_text(text)
        return _pytest(["-m", "pytest", "-x", f"--timeout={limit_s}"], tests) != 0
    finally:
        path.write_text(before)


@cache
def measured(package: Path) -> tuple[coverage.CoverageData, dict[str, float]]:
    """Run the tests of a package's modules. Return which lines each runs, and the tests' lengths in s.

    Files of tests that an earlier run measured are not run again, unless the package differs since.
    """
    dotted = ".".join(package.parts)
    folders = map(Path, config().pytest_add_cli_args_test_selection or ["tests"])
    texts = {str(file): file.read_text() for folder in folders for file in sorted(folder.rglob("test_*.py"))}
    files = [file for file in texts if Path(file).parent == "tests" / package]
    code = {str(path): path.read_text() for path in sorted(package.glob("*.py"))}
    for module in map(Path, code):
        if not any(_imports(texts[file], module) for file in files):
            users = [file for file in texts if _imports(texts[file], module)]
            if not users:
                # Tests of another package's modules that import this one.
                others = [path for path in Path().glob("*/*/**/*.py") if path.parts[:-1] != package.parts]
                others = [path for path in others if _imports(path.read_text(), module)]
                users = [file for file in texts if any(_imports(texts[file], other) for other in others)]
            files += [file for file in users if file not in files]
    data, name = BUILD / f"mutants-{dotted}.coverage", f"mutants-{dotted}.files"
    known = _read(name)
    if known.get("code") != code:
        known = {"code": code, "texts": {}, "lengths": {}}
        data.unlink(missing_ok=True)
    new = [file for file in files if known["texts"].get(file) != texts[file]]
    if new:
        print(f"{dotted}: which of {len(new)} files of tests runs which line", flush=True)
        measuring = [
            "-m",
            "coverage",
            "run",
            "--append",
            f"--data-file={data}",
            f"--include={COPY / package}/*",
        ]
        if _pytest([*measuring, "-m", "pytest"], new) > pytest.ExitCode.TESTS_FAILED:
            sys.exit(f"the tests of {dotted} do not run: {BUILD / 'mutants.log'} says why")
        old = {test: length for test, length in known["lengths"].items() if test.split("::")[0] not in new}
        known["lengths"] = old | _read("mutants.lengths")
        known["texts"] |= {file: texts[file] for file in new}
        (BUILD / name).write_text(json.dumps(known))
    lines = coverage.CoverageData(str(data))
    lines.read()
    return lines, known["lengths"]


def _pytest(command: list[str], tests: list[str]) -> int:
    """Run tests of the copy, with the output in build/mutants.log, and return the exit code."""
    (BUILD / "mutants.tests").write_text("\n".join(tests))
    path = os.pathsep.join([str(COPY), str(Path(__file__).parent)])
    options = ["-q", "-p", "mutants", "-p", "no:cacheprovider", *config().pytest_add_cli_args]
    with (BUILD / "mutants.log").open("w") as log:
        return subprocess.run(
            [sys.executable, *command, *options, f"@{BUILD / 'mutants.tests'}"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1" if "-x" in command else ""},
            stdout=log,
            stderr=log,
        ).returncode


def _imports(text: str, module: Path) -> bool:
    dotted = r"\.".join(module.parts[:-1])
    return re.search(rf"\b{dotted}(\.| import [^#\n]*\b){module.stem}\b", text) is not None


def _file(test: str) -> str:
    return test.partition("::")[0]


def _change(path: Path, text: str) -> str:
    lines = path.read_text().splitlines(keepends=True), text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(*lines, str(path), str(path), n=0))


def _read(name: str) -> Any:
    return json.loads((BUILD / name).read_text()) if (BUILD / name).exists() else {}


if __name__ == "__main__":
    sys.exit(main())
