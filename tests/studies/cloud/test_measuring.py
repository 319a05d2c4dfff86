import csv

import numpy as np
import pytest

from control.jobs import InstanceType
from lab.cloud.input.job_file import JobFile
from studies.cloud import measuring
from testbed.cloud.emulated import EmulatedRun
from twinbed import ScenarioError

TYPES = [InstanceType(f"t{vcpus}", "test", vcpus, 16, network_bps=1e9) for vcpus in (4, 32)]
JOBS = [JobFile(name=name, command=["python", "x.py", "{batch}"], batch=8) for name in ("a", "b")]


class Pretended:
    """A cluster of a job that dies of small types."""

    def __init__(self, command, workers, *, directory):
        self.command, self.workers = command, workers
        starts.append((command[2], workers))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def wait_for_steps(self, within_s):
        pass

    def measure(self, kind):
        if kind.name == "t4" and self.workers == 2:
            raise ScenarioError("the job ended")
        return EmulatedRun(np.full(20, 0.5), 0.1, fits=self.command[2] == "8")


starts = []


@pytest.fixture
def cells(monkeypatch):
    starts.clear()
    monkeypatch.setattr(measuring, "Cluster", Pretended)
    return measuring.cells(JOBS, TYPES, (1, 2), (1, 2), cores=1.0)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_only_what_the_machine_carries_is_run(cells):
    assert all(cell.workers * kind.vcpus / 48 <= 0.75 for cell in cells for kind in cell.types)
    assert sorted({(cell.job.name, cell.workers, cell.batch, len(cell.types)) for cell in cells}) == [
        (job, workers, batch, 2 if workers == 1 else 1)
        for job in "ab"
        for workers in (1, 2)
        for batch in (8, 16)
    ]


def test_every_run_is_a_row_and_a_second_collection_adds_nothing(cells, tmp_path):
    path = tmp_path / "runs.csv"
    assert measuring.collect(cells, tmp_path, path) == 12
    table = rows(path)
    outcomes = {(row["instance"], row["workers"], row["batch"]): row["outcome"] for row in table}
    assert outcomes["t32", "1", "8"] == "ok"
    assert outcomes["t32", "1", "16"] == "does not fit into the memory"
    assert outcomes["t4", "2", "8"] == "the job ended"
    assert {row["step_median_s"] for row in table if row["outcome"] == "ok"} == {"0.500000"}
    begun = len(starts)
    assert measuring.collect(cells, tmp_path, path) == 12
    assert (len(starts), rows(path)) == (begun, table)


def test_a_collection_that_is_stopped_goes_on_later(cells, tmp_path):
    path = tmp_path / "runs.csv"
    measuring.collect(cells, tmp_path, path, going_on=lambda: not path.exists())
    assert 0 < len(rows(path)) <= 2
    assert measuring.collect(cells, tmp_path, path) == len(rows(path)) == 12


def test_another_table_is_left_alone(cells, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ScenarioError, match="other columns"):
        measuring.collect(cells, tmp_path, path)
    assert path.read_text() == "a,b\n1,2\n"
