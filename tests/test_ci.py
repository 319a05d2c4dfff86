"""The demands of CI on a test run besides passing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ci, conftest

LIST = """
[everywhere]
reasons = ["public data set \\\\S+ is not in .*"]
["root, cgroup v1, no modules"]
reasons = ["this kernel has no cls_flower"]
"""


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    path = tmp_path / "allowed.toml"
    path.write_text(LIST)
    return path


def test_a_skip_is_unexpected_unless_its_whole_reason_is_listed_for_the_machine(allowed):
    skips = [
        ("a", "public data set seren is not in /data"),
        ("b", "this kernel has no cls_flower"),
        ("c", "this kernel has no cls_flower, nor anything else"),
    ]
    assert ci.unexpected(skips, "root, cgroup v1, no modules", allowed) == [
        "c: this kernel has no cls_flower, nor anything else"
    ]


def test_a_machine_without_a_list_may_skip_anything(allowed):
    assert ci.unexpected([("a", "no network here")], "user, cgroup v2, modules", allowed) == []


def test_reruns_of_all_test_runs_count_together(tmp_path):
    noted = tmp_path / "reruns"
    assert ci.too_many(["a", "b"], noted) == []
    assert ci.too_many(["c"], noted) == ["3 tests passed only when they ran again, more than 2: a, b, c"]
    assert ci.too_many(["a", "b"], None) == []


def test_a_name_of_a_test_holds_neither_bytes_nor_a_long_text():
    named = [conftest.pytest_make_parametrize_id(value, "content") for value in (b"", "x" * 200, "x", 1)]
    assert named == ["content", "content", None, None]


PASSING_BUT = """
import pytest
tries = []
@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize("test", range({flaky}))
def test_flaky(test):
    tries.append(test)
    assert tries.count(test) == 2
def test_skipped():
    pytest.skip("{reason}")
"""


LISTED = "two VMs take a minute and a half: make test-roce"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flaky", "reason", "in_ci", "code", "options"),
    [
        (1, LISTED, "true", 0, ()),
        (1, "nobody expects this", "true", 1, ()),
        (1, "nobody expects this", "true", 1, ("-n", "2")),
        (1, "nobody expects this", "", 0, ()),
        (3, LISTED, "true", 1, ()),
    ],
)
def test_a_run_of_ci_fails_although_its_tests_pass(tmp_path, flaky, reason, in_ci, code, options):
    (tmp_path / "conftest.py").write_text(
        "from tests import ci\n"
        "ci.machine = lambda: 'root, cgroup v1, no modules'\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(ci)\n"
    )
    (tmp_path / "test_passing_but.py").write_text(PASSING_BUT.format(flaky=flaky, reason=reason))
    here = {**os.environ, "CI": in_ci, "PYTHONPATH": str(Path(ci.__file__).parents[1])}
    here |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TWINBED_RERUNS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_rerunfailures", "-p", "xdist.plugin"]
    command += ["-c", os.devnull, "--rootdir", tmp_path, *options, tmp_path]
    ran = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stdout
    assert ("CI: " in ran.stdout) == bool(code)
