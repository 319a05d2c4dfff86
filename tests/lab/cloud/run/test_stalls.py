"""The table of a job's stalls beside the twin's."""

import json
from dataclasses import replace

import pytest

from control.profiler.stalls import Reading, Run, Timing
from lab.cloud.input.job_file import JobFile
from lab.cloud.input.listed import instance_type
from lab.cloud.real.stalls import epoch_samples, measure
from lab.cloud.run.stalls import Measured, result
from lab.runs.formats import FORMATS
from traces.catalogue.catalogue import load
from twinbed import ScenarioError

TIMES = {Run.ALONE: 8.0, Run.TOGETHER: 10.0, Run.COLD: 14.0, Run.WARM: 12.0, Run.APART: 50.0}
MEASURED = Measured(
    job="a",
    type="t",
    price_usd_h=0.5,
    workers=2,
    cores=0.5,
    network_bps=8e6,
    batch=10,
    gradient_bytes=(1_000_000,),
    timings={run: Timing((seconds, seconds), 100) for run, seconds in TIMES.items()},
    refused="",
    sizes_bytes=(1_000_000, 2_000_000),
    # No latency, 80 Mbit/s: half of the bytes twice.
    all_reduce_s=(0.1, 0.2),
    warm=Reading(0.005, 0.0),
    cold=Reading(0.005, 0.01),
)


def test_the_twin_expects_the_runs_from_bytes_links_and_readings():
    expected = {run: timing.time_s(100) for run, timing in MEASURED.expected.items()}
    # Ten steps of 0.1 s, or 1 s through 8 Mbit/s; 100 samples of 10 ms on half a core and 10 ms of waiting.
    assert expected == pytest.approx(
        {Run.ALONE: 8, Run.TOGETHER: 9, Run.WARM: 10, Run.COLD: 11, Run.APART: 18}, rel=1e-6
    )


def test_the_table_has_stalls_beside_the_twin_s_and_epochs_with_their_costs():
    document = json.loads(FORMATS["json"](result([MEASURED], epoch_samples=7200)))
    rows = {row["what"]: row for row in document["rows"]}
    network = rows["network stall"]
    assert (network["measured_s"], network["measured_share"], network["twin_s"]) == (40, 4, pytest.approx(9))
    alone, apart = rows["1 worker"], rows["2 workers on 2 machines"]
    assert (alone["measured_s"], apart["measured_s"]) == (8 * 72, 50 * 36)
    assert (alone["epoch_usd"], apart["epoch_usd"]) == (0.5 * 576 / 3600, 1.0 * 1800 / 3600)
    notes = document["notes"]
    assert notes[0] == "t: fix first: network."
    assert notes[1].startswith("By cost of an epoch: t, 1 worker; t, 2 workers on a machine;")
    assert notes[2].startswith("By time of an epoch: t, 2 workers on a machine; t, 1 worker;")
    assert notes[3] == "t, 2 workers on 2 machines is dearer per hour and slower than t, 1 worker."


def test_a_refused_run_is_told_and_has_no_row():
    timings = {run: timing for run, timing in MEASURED.timings.items() if run is not Run.COLD}
    refused = replace(MEASURED, timings=timings, cold=None, refused="RUN2 is refused: why")
    shown = result([refused], 7200)
    assert "RUN2 is refused: why" in shown.notes
    assert "disk stall" not in [row["what"] for row in shown.rows]


def test_what_cannot_be_profiled_is_refused_before_anything_starts(tmp_path):
    listing = load().types("us-central1")["n1-standard-4"]
    assert instance_type(listing).vcpus == 4
    command = ["python", "x.py", "{data}"]
    with pytest.raises(ScenarioError, match=r"job a: command: no \{data\}"):
        measure(JobFile(name="a", command=command[:2]), [listing], 2, directory=tmp_path)
    with pytest.raises(ScenarioError, match="1000 workers of n1-standard-4 need 83 cores"):
        measure(JobFile(name="a", command=command), [listing], 1000, directory=tmp_path)
    with pytest.raises(ScenarioError, match="samples: missing"):
        epoch_samples(JobFile(name="a"))
    assert epoch_samples(JobFile(name="a", samples=100, features={"epochs": 4})) == 25


def test_the_verb_refuses_in_one_line_what_it_cannot_profile(twinbed, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("name: a\ncommand: python x.py\nsamples: 100\nbatch: 4")
    assert "--types t9: not in us-central1" in twinbed("profile", path, "--stalls", "--types", "t9").refused
    assert "job a: command: no {data}; add it" in twinbed("profile", path, "--stalls").refused
