from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from control.scheduler import POLICIES, make
from lab.ask.scenario import expand
from lab.cluster.calibrate.measure import HEAD
from lab.cluster.calibrate.values import FORM
from lab.cluster.input import cluster_of
from lab.cluster.real import backend
from lab.cluster.run import runner
from lab.runs.store import RunStore
from studies.fidelity_cluster import page
from studies.harness import Asked
from twinbed import ScenarioError


@pytest.fixture
def measured(tmp_path, monkeypatch) -> RunStore:
    """A store of runs that are called real and that the twin made, of one load."""

    def run(spec, store, repeat, progress, code=None):
        twin = runner.run_all([spec], RunStore(tmp_path / "twin"), fresh=True, progress=None)[0]
        manifest = {**twin.manifest, "id": f"{twin.id}-real", "backend": backend.NAME, "repeat": repeat}
        manifest["testbed"] = {"cpus": "2", "cpu_model": "made up"}
        scheduler = runner.Drawn(cluster_of(spec.scenario), spec.seed).scheduler(spec.policy)
        manifest["scheduler_sha256"] = backend.scheduler_sha256(scheduler) if code is None else code
        return store.publish(manifest, {name: twin.table(name) for name in twin.tables})

    monkeypatch.setattr(backend, "run", run)
    monkeypatch.setattr(page, "calibrate", lambda *_: replace(FORM.load(None), name="of this machine"))
    monkeypatch.setattr(page, "DRAWS", 2)
    return RunStore(tmp_path / "real")


def run_really(store: RunStore, spec, **more) -> None:
    """Make a calibration and a run of real processes."""
    place = page.place_of_calibration(store, "Real processes", spec, 0)
    place.parent.mkdir(exist_ok=True)
    place.write_text(FORM.write(FORM.load(None), HEAD))
    backend.run(page.calibrated(spec, place), store, 0, None, **more)


def test_the_page_compares_what_was_measured_and_says_what_was_not(measured: RunStore, tmp_path) -> None:
    for spec in expand(page.scenario(()))[:3]:
        run_really(measured, spec)
    asked = Asked(store=tmp_path / "real", out=tmp_path, page_only=True)
    assert page.make(asked) == 0
    text = (tmp_path / "fidelity-cluster.md").read_text()
    assert "The twin predicts 3 of 3 measured mean job completion times (JCT) within 10%." in text
    assert "ranks the policies as the testbed does in 1 of 1 questions" in text
    assert text.count("Not run yet.") == 2
    assert len(re.findall(r"\| yes \|", text)) == 3
    assert "other code" not in text


def test_the_page_names_the_rows_whose_real_run_was_decided_by_other_code(measured: RunStore) -> None:
    first, second, third = expand(page.scenario(()))[:3]
    run_really(measured, first, code="of an older version")
    run_really(measured, second)
    run_really(measured, third, code="")
    told = page.document(measured).partition("made before the code was recorded: ")[2].partition("\n")[0]
    assert told == f"Real processes: {first.label}."


def test_the_code_of_a_scheduler_is_that_of_the_modules_that_it_uses() -> None:
    cluster = runner.Drawn(cluster_of(expand(page.scenario(()))[0].scenario), 0).jobs.cluster
    code = {name: backend.scheduler_sha256(make(name, cluster, 0)) for name in POLICIES}
    assert code["fifo"] == code["yarn"]
    assert code["gavel"] == code["las"]
    assert len({code[name] for name in ("fifo", "tiresias", "gavel", "gavel-sharing", "hadar")}) == 5
    quotas = replace(cluster, queue_share=np.ones(1), queue_most=np.full(1, 0.5))
    assert backend.scheduler_sha256(make("tiresias", quotas, 0)) not in ("", code["tiresias"])


def test_each_run_has_a_calibration_and_the_same_command_goes_on_where_it_stopped(
    measured: RunStore, tmp_path, monkeypatch
) -> None:
    made, calibrations = [], []
    run, calibrate = backend.run, page.calibrate
    monkeypatch.setattr(backend, "run", lambda spec, *others: made.append(spec) or run(spec, *others))
    monkeypatch.setattr(page, "calibrate", lambda *asked: calibrations.append(asked) or calibrate(*asked))
    page.make(Asked(store=tmp_path / "new" / "real", out=tmp_path))
    # Six runs of real processes, two of Slurm's own backfill, six that it runs.
    assert len(made) == len(calibrations) == 6 + 2 + 6
    assert {spec.calibration.name for spec in made} == {"of this machine"}
    text = (tmp_path / "fidelity-cluster.md").read_text()
    assert "each run has a calibration of its own" in text
    assert "of 14 measured mean job completion times" in text
    page.make(Asked(store=tmp_path / "new" / "real", out=tmp_path))
    assert len(made) == len(calibrations) == 14


def test_only_the_named_parts_are_made_and_an_unknown_one_is_refused(measured: RunStore, tmp_path) -> None:
    asked = Asked(store=tmp_path / "real", out=tmp_path, only=["slurm-decides"])
    assert page.make(asked) == 0
    text = (tmp_path / "fidelity-cluster.md").read_text()
    assert text.count("Not run yet.") == 2
    assert "Not run yet." not in text.partition("## Slurm decides")[2].partition("##")[0]
    with pytest.raises(ScenarioError, match=r"--only slurm: no part; .*slurm-runs"):
        page.parts_of(["slurm"])
