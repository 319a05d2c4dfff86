"""The shipped jobs really train."""

import importlib
import signal
import sys
from pathlib import Path

import pytest

from lab.cloud.input import job_file

JOBS = Path(__file__).parents[2] / "scenarios" / "jobs"
NAMES = sorted(path.stem for path in JOBS.glob("*.yaml"))


@pytest.fixture
def jobs(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed: pip install 'twinbed[cloud]'")
    monkeypatch.syspath_prepend(str(JOBS))
    before = set(sys.modules)
    yield importlib.import_module("training")
    for name in set(sys.modules) - before:
        if str(JOBS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_there_are_seven_of_text_audio_and_images():
    assert len(NAMES) == 7
    assert {name.split("_")[0] for name in NAMES} == {"text", "audio", "images"}


@pytest.mark.parametrize("name", NAMES)
def test_its_file_starts_a_script_that_is_there(name):
    given = job_file.load(JOBS / f"{name}.yaml")
    assert given.name == name
    assert (JOBS / given.command_line()[1]).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_learns(jobs, name):
    import torch

    job = importlib.import_module(name)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    given = job_file.load(JOBS / f"{name}.yaml")
    rate = given.features["learning_rate"]
    lines = list(jobs.steps(job.Net(), job.make, given.batch, 60, rate, torch.optim.Adam))
    first, last = (float(line.split()[3]) for line in (lines[0], lines[-1]))
    assert last < 0.85 * first


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_its_samples_may_come_from_a_file_or_be_kept_in_memory(jobs, monkeypatch, tmp_path, name):
    import torch

    monkeypatch.setattr(jobs, "DATA_BYTES", 1)
    job, generator = importlib.import_module(name), torch.Generator()
    made = job.make(8, generator)
    read = jobs.source(job.make, str(tmp_path / "samples"), 0, 1)(8, generator)
    for ours, theirs in zip(made, read, strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    whole = job.make(500, torch.Generator().manual_seed(0))
    assert all((whole[0] == sample).flatten(1).all(1).any() for sample in read[0])
    kept = jobs.source(job.make, "kept", 0, 1)
    assert kept(8, generator) is kept(8, generator)
    assert jobs.source(job.make, "made", 0, 1) is job.make


def test_each_epoch_reads_every_sample_of_a_file_once_over_all_ranks(jobs, monkeypatch, tmp_path):
    import torch

    monkeypatch.setattr(jobs, "DATA_BYTES", 1)
    monkeypatch.setattr(jobs.dist, "barrier", lambda: None)

    def make(count, _generator):
        return torch.arange(count)[:, None], torch.arange(count)

    ranks = [jobs.File(tmp_path / "samples", make, rank, 2) for rank in range(2)]
    epochs = []
    for _ in range(2):
        parts = [rank.batch(250, None) for rank in ranks]
        assert all((samples[:, 0] == labels).all() for samples, labels in parts)
        epochs.append(torch.cat([labels for _, labels in parts]).tolist())
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(500))
    assert epochs[0] != epochs[1]


@pytest.mark.slow
def test_a_job_that_was_stopped_goes_on_as_if_it_had_not_been(jobs, tmp_path):
    import torch

    job = importlib.import_module("text_bag")

    def train(path, stopped_after=None):
        torch.manual_seed(0)
        saved, lines = jobs.Checkpoint(path, 10**9), []
        for line in jobs.steps(job.Net(), job.make, 64, 40, 5e-3, torch.optim.Adam, saved=saved):
            lines.append(line)
            saved.asked = len(lines) == stopped_after
        return lines

    before = signal.getsignal(signal.SIGTERM)
    try:
        whole = train(tmp_path / "whole")
        parts = [train(tmp_path / "parts", 2), train(tmp_path / "parts")]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [len(part) for part in parts] == [2, 2]
    assert parts[0] + parts[1] == whole
