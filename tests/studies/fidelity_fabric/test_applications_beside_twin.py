"""Measured trainings beside the twin's: from cells made up so that the right answer is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from control.fabric import BfdTimers
from studies.fidelity_fabric import application_rows, application_twin, applications
from studies.fidelity_fabric.applications import Cell, OnOnePath, Through
from twinbed import ScenarioError

USUAL_S = 0.05
COUNT = 1000


def test_iterations_beside_faults_are_no_part_of_the_usual_ones() -> None:
    iterations = application_twin.measured(_training(stall_s=0.55))
    assert iterations.usual_s == pytest.approx(USUAL_S)
    assert iterations.longest_s == pytest.approx([0.6, 0.6, 0.6])
    assert iterations.inflation == pytest.approx((COUNT * 0.05 + 3 * 0.55) / (COUNT * 0.05))


def test_a_fault_of_an_empty_path_did_not_meet_the_job() -> None:
    cell = _training(stall_s=0.55)
    cell["faults"][1] |= {"out_per_s": 1500.0, "in_per_s": 1500.0}
    assert [fault["at_s"] for fault in application_twin.met(cell)] == [
        cell["faults"][0]["at_s"],
        cell["faults"][2]["at_s"],
    ]


def test_the_twin_waits_for_tcp_to_try_again() -> None:
    # Detected after 0.18-0.25 s and held for 0.05 s at least: lost for longer than TCP's first wait of 0.2 s,
    # and not for as long as its first and second together, 0.6 s.
    said = application_twin.predicted(_training(stall_s=0.55))
    assert np.median(said.longest_s) == pytest.approx(0.2 + 0.4 + USUAL_S, abs=0.02)
    assert said.inflation == pytest.approx(1 + 3 * 0.6 / (COUNT * USUAL_S), rel=0.01)


def test_a_shorter_first_wait_ends_sooner() -> None:
    usual = application_twin.predicted(_training(stall_s=0.55))
    quick = application_twin.predicted(_training(stall_s=0.25, rto_min_s=0.01))
    assert np.median(quick.longest_s) < np.median(usual.longest_s)


def test_without_a_fault_that_met_it_the_twins_job_takes_its_usual_time() -> None:
    cell = _training(stall_s=0.0) | {"faults": []}
    assert application_twin.predicted(cell).inflation == pytest.approx(1.0, abs=1e-6)


def test_the_twins_job_dies_with_its_path_and_does_again_what_it_had_not_saved() -> None:
    cell = _dying()
    said, real = application_twin.restarts_predicted(cell), application_twin.restarts_measured(cell)
    assert (said.deaths, real.deaths) == (1, 1)
    # 40 s of work and a death at 12.3 s: the path is back at 20 s, used 1.8 s later, 6 s to start; of the
    # last 2.5 s of work 2.3 are lost.
    assert said.lost_s == pytest.approx(20 + 1.8 + 6 - 12.3 + 2.3 - 0.01 * 4, abs=0.1)
    assert said.job_s == pytest.approx(40 + said.lost_s + 0.01 * 15, abs=0.1)


def test_tables_have_what_the_store_has(tmp_path: Path) -> None:
    (tmp_path / "training-5x50.json").write_text(json.dumps(_training(stall_s=0.55)))
    (tmp_path / "restart.json").write_text(json.dumps(_dying()))
    tables = application_rows.rows(tmp_path)
    assert set(tables) == {"training", "iterations", "restart"}
    (row,) = tables["training"].rows
    assert row["same"] == "yes"
    assert abs(float(row["error"] or 0)) < application_rows.TARGET
    headings = [line for line in application_rows.section(tmp_path) if line.startswith("#")]
    assert [line.count("#") for line in headings] == [2, 3, 3, 3]


def test_a_cell_that_is_there_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(name: str, _: Path) -> Cell:
        measured.append(name)
        return {"name": name}

    monkeypatch.setattr(applications, "measure", measure)
    for _ in range(2):
        applications.fill(tmp_path, ["streams", "web"])
    assert measured == ["streams", "web"]
    assert applications.load(tmp_path) == {"streams": {"name": "streams"}, "web": {"name": "web"}}


def test_a_cell_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="there is no 'strems'"):
        applications.measure("strems", tmp_path)


def _training(*, stall_s: float, rto_min_s: float | None = None) -> Cell:
    """Iterations of USUAL_S each, but that in the middle of each of three faults takes stall_s longer."""
    iteration_s = np.full(COUNT, USUAL_S)
    faults = []
    for index in (200, 500, 800):
        iteration_s[index] += stall_s
        at_s = float(iteration_s[:index].sum()) + USUAL_S / 2
        faults.append({"at_s": at_s, "cleared_s": at_s + 3, "out_per_s": 1e6, "in_per_s": 1500.0})
    return {
        "asked": asdict(Through("made up", bfd=BfdTimers(0.05, 5), rto_min_s=rto_min_s)),
        "quiet_s": [USUAL_S] * COUNT,
        "iteration_s": iteration_s.tolist(),
        "faults": faults,
        "stalls": [],
        "same_loss": True,
        "same_model": True,
        "loss": [2.0, 1.0],
    }


def _dying() -> Cell:
    asked = OnOnePath("made up", iterations=800, timeout_s=5.0, save_every=50)
    return {
        "asked": asdict(asked),
        "quiet_s": [USUAL_S] * 785 + [USUAL_S + 0.01] * 15,
        "save_s": [0.01] * 15,
        "start_s": 6.0,
        "job_s": 58.0,
        "lost_s": {"detect_s": [5.1], "path_s": [4.0], "start_s": [6.0], "redo_s": [2.3]},
        "faults": [{"at_s": 12.3, "cleared_s": 20.0, "out_per_s": 1e6, "in_per_s": 1e6}],
        "same_loss": True,
        "same_model": True,
        "errors": ["Connection closed by peer"],
    }
