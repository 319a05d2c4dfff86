"""Whose waiting makes a run's p99: a service with too little CPU is named; a run without spans says why."""

from dataclasses import replace

import pytest

from lab import api
from lab.containers.run.waiting import explained, told, waiting
from lab.runs.store import RunStore
from tests.lab.sample_runs import publish
from tests.lab.sample_services import question, write_app
from twinbed import ScenarioError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waiting")
    # The database needs 0.4 core and begins with 0.25: it is where requests wait.
    app = write_app(
        folder,
        services={
            "web": {"handlers": {"page": {"cpu_ms": 1.0, "calls": ["db.find"]}}},
            "db": {"handlers": {"find": {"cpu_ms": 8.0}}},
        },
    )
    asked = question(app, policies=["escra"], budget={"cpu_cores": 0.5, "memory_bytes": 1 << 30})
    return api.run(asked, store=str(folder / "store")).runs[0]


def test_the_service_with_too_little_cpu_is_blamed(run):
    found = waiting(run)
    assert found.rows["service"].tolist() == ["db", "web"]
    assert found.rows["slow_wait_s"].iloc[0] > 5 * found.rows["slow_wait_s"].iloc[1]
    assert found.rows["throttled_share"].iloc[0] > 0
    assert "mostly in db" in told(found)[0]


def test_time_on_the_path_adds_up_to_the_latency(run):
    found = waiting(run)
    columns = ["slow_wait_s", "slow_work_s", "typical_wait_s", "typical_work_s"]
    sums = found.rows[columns].sum()
    assert sums["slow_wait_s"] + sums["slow_work_s"] == pytest.approx(found.slow_s)
    assert sums["typical_wait_s"] + sums["typical_work_s"] == pytest.approx(found.typical_s)


def test_records_are_for_machines(run):
    result = explained(run)
    assert [row["service"] for row in result.rows] == ["db", "web"]
    assert all(isinstance(row["slow_wait_s"], float) for row in result.rows)


def test_a_run_without_spans_says_why(run, tmp_path):
    with pytest.raises(ScenarioError, match="has no requests"):
        explained(publish(RunStore(tmp_path)))
    tables = {name: digest for name, digest in run.manifest["tables"].items() if name != "spans"}
    for backend, why in (("testbed", "the testbed's services record none"), ("twin", "make it again")):
        bare = replace(run, manifest={**run.manifest, "tables": tables, "backend": backend})
        with pytest.raises(ScenarioError, match=why):
            explained(bare)
