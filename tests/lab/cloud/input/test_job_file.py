import sys

import numpy as np
import pytest

from lab.cloud.input import job_file
from twinbed import ScenarioError

FULL = """
name: mine
command: python train.py --batch {batch} --steps {steps}
batch: 32
samples: 6e4
features: {learning_rate: 1e-3}
"""


def write(tmp_path, text):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path):
    file = job_file.load(write(tmp_path, FULL))
    assert file.command_line(steps=7) == (sys.executable, "train.py", "--batch", "32", "--steps", "7")
    assert file.command_line(batch=8)[3] == "8"
    job = job_file.as_job(file)
    assert (job.name, job.samples, job.features["learning_rate"]) == ("mine", 6e4, 1e-3)
    assert job.local_run is None


def test_a_name_is_enough(tmp_path):
    job = job_file.as_job(job_file.load(write(tmp_path, "name: mine")))
    assert np.isnan(job.samples)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch: 3", "name: missing"),
        ("name: a\nbatch: true", "batch: "),
        ("name: a b", "name: "),
        ("name: ../a", "name: "),
        ("name: a//b", "name: "),
        ("name: a\nbatchs: 3", "did you mean 'batch'"),
        ("- a", "expected keys"),
        ("name: a\nlocal_run: gone.parquet", "gone.parquet: no such file; twinbed profile makes it"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, message):
    with pytest.raises(ScenarioError, match=message):
        job_file.as_job(job_file.load(write(tmp_path, text)))


def test_related_jobs_have_names_with_common_parts(tmp_path):
    # docs/how-to/choose-a-configuration.md gives this advice.
    path = write(tmp_path, "name: resnet/imagenet/large")
    assert job_file.load(path).name == "resnet/imagenet/large"
    assert job_file.local_run_of(path, "resnet/imagenet/large").parent == path.parent


def test_commands_that_cannot_be_filled_in(tmp_path):
    path = write(tmp_path, "name: a\ncommand: train {epochs}")
    with pytest.raises(ScenarioError, match=rf"^{path}: job a: command: .*'epochs' in braces is unknown"):
        job_file.load(path)
    with pytest.raises(ScenarioError, match="no command"):
        job_file.load(write(tmp_path, "name: a")).command_line()


@pytest.mark.parametrize(
    "word",
    [
        "{batch:>2000000000}",
        "{batch!r}",
        "{batch.__class__}",
        "{batch[0]}",
        "{}",
        "{0}",
        "{steps:{batch}}",
        "{",
    ],
)
def test_a_command_takes_plain_names_in_braces_only(tmp_path, word):
    path = write(tmp_path, f"name: a\nbatch: 7\ncommand: ['train', '{word}']")
    with pytest.raises(ScenarioError, match=r"job a: command: .*known are \{batch\}, \{steps\} and \{data\}"):
        job_file.load(path)


def test_a_command_is_told_where_its_samples_come_from_if_it_can_be(tmp_path):
    file = job_file.load(write(tmp_path, "name: a\ncommand: train --from={data}"))
    assert file.command_line()[1] == "--from=made"
    assert file.command_line(data="/x")[1] == "--from=/x"
    with pytest.raises(ScenarioError, match=r"job a: command: no \{data\}; add it"):
        job_file.load(write(tmp_path, "name: a\ncommand: train")).command_line(data="kept")


def test_names_in_a_command_are_filled_in_and_doubled_braces_are_braces(tmp_path):
    file = job_file.load(
        write(tmp_path, "name: a\nbatch: 7\ncommand: ['train', 'b={batch},{steps}', '{{x}}']")
    )
    assert file.command_line(steps=9) == ("train", "b=7,9", "{x}")
