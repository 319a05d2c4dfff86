from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from lab.ask.scenario import expand
from lab.cluster.calibrate.values import FORM
from lab.cluster.real import backend
from lab.cluster.run import runner
from lab.runs.store import RunStore
from studies.fidelity_cluster import page
from studies.harness import Asked

NOWHERE = Path("there is no such file")


@pytest.fixture
def measured(tmp_path, monkeypatch) -> RunStore:
    """A store of runs that are called real and that the twin made, of one load."""

    def run(spec, store, repeat, progress):
        twin = runner.run_all([spec], RunStore(tmp_path / "twin"), fresh=True, progress=None)[0]
        manifest = {**twin.manifest, "id": f"{twin.id}-real", "backend": backend.NAME, "repeat": repeat}
        manifest["testbed"] = {"cpus": "2", "cpu_model": "made up"}
        return store.publish(manifest, {name: twin.table(name) for name in twin.tables})

    monkeypatch.setattr(backend, "run", run)
    monkeypatch.setattr(page, "calibrate", lambda *_: replace(FORM.load(None), name="of this machine"))
    return RunStore(tmp_path / "real")


def test_the_page_compares_what_was_measured_and_says_what_was_not(measured: RunStore, tmp_path) -> None:
    for spec in expand(page.scenario((), NOWHERE))[:3]:
        backend.run(spec, measured, 0, None)
    asked = Asked(store=tmp_path / "real", out=tmp_path, page_only=True)
    assert page.make(asked) == 0
    text = (tmp_path / "fidelity-cluster.md").read_text()
    assert "Of 3 mean JCTs that were measured, the twin has 3 within 10%." in text
    assert "the order of the policies in 1 of 1 questions" in text
    assert text.count("Not run yet.") == 2
    assert len(re.findall(r"\| yes \|", text)) == 3


def test_the_machine_is_calibrated_once_and_then_it_goes_on_where_it_stopped(
    measured: RunStore, tmp_path, monkeypatch
) -> None:
    made = []
    run = backend.run
    monkeypatch.setattr(backend, "run", lambda spec, *others: made.append(spec) or run(spec, *others))
    page.make(Asked(store=tmp_path / "real", out=tmp_path))
    # Six runs of real processes, two of Slurm's own backfill, six that it runs.
    assert len(made) == 6 + 2 + 6
    assert {spec.calibration.name for spec in made} == {"of this machine"}
    assert (
        "the twin has this machine's calibration for each part"
        in (tmp_path / "fidelity-cluster.md").read_text()
    )
    monkeypatch.setattr(page, "calibrate", None)
    page.make(Asked(store=tmp_path / "real", out=tmp_path))
    assert len(made) == 14
