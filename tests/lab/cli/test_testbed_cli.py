"""`twinbed testbed`: the verbs around the machine, with what they find made up or real."""

from __future__ import annotations

import csv
import json

import pytest
from cli_calls import Twinbed

from testbed.containers import cgroups, doctor, leftovers
from testbed.containers.doctor import Finding
from testbed.containers.leftovers import Run
from twinbed import BackendError

RUNS = (
    Run(
        "run-10-20-0",
        alive=True,
        pid=10,
        groups=3,
        processes=2,
        networks=0,
        containers=0,
        attached=0,
        folders=0,
    ),
    Run(
        "run-11-20-0",
        alive=False,
        pid=11,
        groups=3,
        processes=0,
        networks=2,
        containers=1,
        attached=1,
        folders=1,
    ),
)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A machine with the two runs above; what `down` was asked for."""
    asked: list[bool] = []

    def down(driver: object, *, live: bool) -> tuple[Run, ...]:
        asked.append(live)
        return RUNS if live else RUNS[1:]

    monkeypatch.setattr(cgroups, "detect", lambda: None)
    monkeypatch.setattr(leftovers, "runs", lambda driver: RUNS)
    monkeypatch.setattr(leftovers, "down", down)
    return asked


def test_status_lists_runs_and_says_how_to_remove_what_is_left(twinbed: Twinbed, here: list[bool]) -> None:
    shown = twinbed("testbed", "status")
    assert shown.code == 1
    assert "left over" in shown.out
    assert "twinbed testbed down removes what is left over." in shown.out
    rows = json.loads(twinbed("testbed", "status", "--format", "json").out)["rows"]
    assert [each["state"] for each in rows] == ["live", "left over"]
    assert rows[1]["networks"] == 2


def test_status_of_a_tidy_machine_is_no_problem(
    twinbed: Twinbed, here: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "runs", lambda driver: RUNS[:1])
    assert twinbed("testbed", "status").code == 0


@pytest.mark.parametrize(("arguments", "live", "count"), [((), False, "1"), (("--all",), True, "2")])
def test_down_removes_leftovers_and_live_runs_only_with_all(
    twinbed: Twinbed, here: list[bool], arguments: tuple[str, ...], live: bool, count: str
) -> None:
    ended = twinbed("testbed", "down", *arguments)
    assert (ended.code, here) == (0, [live])
    assert f"{count} removed." in ended.out


def test_a_machine_without_cgroups_is_refused_in_one_line(
    twinbed: Twinbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise BackendError("no cgroup controller cpu is mounted here")

    monkeypatch.setattr(cgroups, "detect", refuse)
    assert twinbed("testbed", "down").refused == "no cgroup controller cpu is mounted here"


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("missing", 1), ("not allowed", 1)])
def test_doctor_ends_with_1_where_something_needed_is_missing(
    twinbed: Twinbed, monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    findings = (
        Finding("cgroups", status, "found this", "for that", "" if code == 0 else "do so", needed=True),  # type: ignore[arg-type]
        Finding("runc", "missing", "not installed", "containers", "sudo apt install runc"),
    )
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    shown = twinbed("testbed", "doctor")
    assert shown.code == code
    assert "sudo apt install runc" in shown.out
    assert ("can run here" in shown.out) == (code == 0)
    rows = list(csv.DictReader(twinbed("testbed", "doctor", "--format", "csv").out.splitlines()))
    assert [each["feature"] for each in rows] == ["cgroups", "runc"]
    assert [each["needed"] for each in rows] == ["True", "False"]
    assert "| runc | missing |" in twinbed("testbed", "doctor", "--format", "markdown").out


@pytest.mark.root
def test_the_verbs_work_on_this_machine(twinbed: Twinbed, cgroups: None) -> None:
    assert twinbed("testbed", "doctor").code == 0
    assert twinbed("testbed", "status").code in (0, 1)
    assert twinbed("testbed", "down").code == 0
