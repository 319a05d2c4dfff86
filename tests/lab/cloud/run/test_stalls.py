"""The table of a job's stalls beside the twin's."""

import json
from dataclasses import replace

import pytest

from control.profiler.stalls import Run
from lab.cloud.input.job_file import JobFile
from lab.cloud.real.stalls import measure
from lab.cloud.run.stalls import result
from lab.runs.formats import FORMATS
from tests.made_up_jobs import PROFILED
from traces.catalogue.catalogue import load
from twinbed import ScenarioError


def test_the_table_has_stalls_beside_the_twin_s_and_epochs_with_their_costs():
    document = json.loads(FORMATS["json"](result([PROFILED], epoch_samples=7200)))
    rows = {row["what"]: row for row in document["rows"]}
    network = rows["network stall"]
    assert (network["measured_s"], network["measured_share"], network["twin_s"]) == (40, 4, pytest.approx(9))
    alone, apart = rows["epoch with 1 worker"], rows["epoch with 2 workers on 2 machines"]
    # The type is 48 times as fast as its emulation, on which the runs were timed.
    assert (alone["measured_s"], apart["measured_s"]) == (8 * 72 / 48, 50 * 36 / 48)
    assert alone["epoch_usd"] == pytest.approx(0.5 * 576 / 48 / 3600)
    assert apart["epoch_usd"] == pytest.approx(1.0 * 1800 / 48 / 3600)
    notes = document["notes"]
    assert notes[0] == "t: fix the network first."
    assert notes[1].startswith("Epochs, the cheapest first: t, 1 worker; t, 2 workers on a machine;")
    assert notes[2].startswith("Epochs, the shortest first: t, 2 workers on a machine; t, 1 worker;")
    assert notes[3] == "t, 2 workers on 2 machines is dearer per hour and slower than t, 1 worker."


def test_one_worker_is_one_set_of_machines():
    alone = replace(PROFILED, workers=1)
    rows = [row["what"] for row in result([alone], 7200).rows]
    assert [what for what in rows if "worker" in what] == ["epoch with 1 worker"]


def test_a_refused_run_is_told_and_has_no_row():
    timings = {run: timing for run, timing in PROFILED.timings.items() if run is not Run.COLD}
    refused = replace(PROFILED, timings=timings, cold=None, refused="the disk stall is not measured: why")
    shown = result([refused], 7200)
    assert "t: the disk stall is not measured: why" in shown.notes
    assert "disk stall" not in [row["what"] for row in shown.rows]


def test_what_cannot_be_profiled_is_refused_before_anything_starts(tmp_path):
    listing = load().types("us-central1")["n1-standard-4"]
    command = ["python", "x.py", "{data}"]
    with pytest.raises(ScenarioError, match=r"job a: command: no \{data\}"):
        measure(JobFile(name="a", command=command[:2]), [listing], 2, directory=tmp_path)
    with pytest.raises(ScenarioError, match="1000 workers of n1-standard-4 need 83 cores"):
        measure(JobFile(name="a", command=command), [listing], 1000, directory=tmp_path)


def test_the_verb_refuses_in_one_line_what_it_cannot_profile(twinbed, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("name: a\ncommand: python x.py\nsamples: 100\nbatch: 4")
    assert "--types t9: not in us-central1" in twinbed("profile", path, "--stalls", "--types", "t9").refused
    assert "job a: command: no {data}; add it" in twinbed("profile", path, "--stalls").refused
    path.write_text("name: a\ncommand: python x.py {data}\nsamples: 9\nfeatures: {epochs: 0}")
    assert "features.epochs is 0; it must be above 0" in twinbed("profile", path, "--stalls").refused
    path.write_text("name: a\ncommand: python x.py {data}")
    assert "job a: samples: missing" in twinbed("profile", path, "--stalls").refused
    for words in (["--out", "x.parquet"], ["--steps", "20"]):
        assert "have no meaning with --stalls" in twinbed("profile", path, "--stalls", *words).refused
