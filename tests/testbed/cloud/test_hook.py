"""A script that knows nothing of twinbed, run with the hook in its path."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from testbed.cloud import steps
from testbed.waiting import until
from tests.patience import PATIENCE_S
from twinbed import BackendError

SCRIPT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
model.register_buffer("mean", torch.zeros(3))
model[0].bias.requires_grad = False
model.eval()
model(torch.ones(99, 4))  # an evaluation before the training is no batch
model.train()
descent, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(model[0].parameters(), lr=0.1)
for _ in range(7):
    model(torch.ones(5, 4)).sum().backward()
    descent.step()
    other.step()
"""


def run(script, folder, **extra):
    environment = {**os.environ, **steps.environment(folder, 0, 1, os.environ), **extra}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )


@pytest.mark.slow
def test_steps_batch_parameters_and_layers_are_noted_without_a_change_to_the_script(tmp_path):
    done = run(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    ends_ns = steps.step_ends_ns(tmp_path)
    assert len(ends_ns) == 7
    assert (np.diff(ends_ns) > 0).all()
    model = steps.model(tmp_path)
    assert (model.batch, model.parameters, model.gradient_bytes) == (5, 50, (128, 64, 8))
    assert model.layers == ("Linear", "ReLU", "Linear")
    assert (model.non_trainable, model.input_size, model.input_bytes, model.output_size) == (8 + 3, 4, 16, 2)
    assert model.optimiser == "SGD"


@pytest.mark.slow
def test_a_process_waits_after_its_first_step_until_its_gate_exists(tmp_path):
    gate = tmp_path / "gate"
    environment = {**os.environ, **steps.environment(tmp_path, 0, 1, os.environ), "TWINBED_GATE": str(gate)}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment) as job:
        try:
            assert until(lambda: len(steps.step_ends_ns(tmp_path)), PATIENCE_S)
            time.sleep(0.2)
            assert len(steps.step_ends_ns(tmp_path)) == 1
            gate.touch()
            assert job.wait(PATIENCE_S) == 0
        finally:
            job.kill()
    assert len(steps.step_ends_ns(tmp_path)) == 7


@pytest.mark.slow
def test_gradients_are_measured_for_as_many_steps_as_are_asked_for_and_tell_their_noise(tmp_path):
    # A sample's gradient is 1 plus noise of variance 4 in each of 100 elements: the noise scale is 4.
    script = """
import torch
torch.manual_seed(0)
weight = torch.nn.Parameter(torch.zeros(100))
descent = torch.optim.SGD([weight], lr=0.0)
for _ in range(60):
    descent.zero_grad()
    (weight * (1 + 2 * torch.randn(4, 100)).mean(0)).sum().backward()
    descent.step()
"""
    assert not run(script, tmp_path, TWINBED_NOISE_STEPS="50").stderr
    assert (tmp_path / "0.noise").stat().st_size == 50 * 16
    assert steps.noise(tmp_path, 1, 4) == pytest.approx(4.0, rel=0.2)
    assert np.isnan(steps.noise(tmp_path, 2, 4))  # the other process wrote nothing


def test_a_script_without_torch_runs_as_it_would_and_leaves_nothing(tmp_path):
    done = run("import os; print(os.environ['MASTER_ADDR'])", tmp_path, TWINBED_ADDRESS_MASTER="198.18.0.1")
    assert done.stdout == "198.18.0.1\n"
    assert not done.stderr
    assert not list(tmp_path.iterdir())
    assert len(steps.step_ends_ns(tmp_path)) == 0
    with pytest.raises(BackendError, match="trained no PyTorch model"):
        steps.model(tmp_path)


def test_the_site_s_own_customisation_still_runs(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os; os.environ['SITE'] = 'there'")
    environment = {**os.environ, "PYTHONPATH": str(site)}
    environment |= steps.environment(tmp_path, 0, 1, environment)
    code = "import os; print(os.environ['SITE'])"
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "there\n"


def test_a_step_that_is_being_written_is_not_read_yet(tmp_path):
    (tmp_path / "0.steps").write_bytes((5).to_bytes(8, "little") + b"\x01\x02")
    assert steps.step_ends_ns(tmp_path).tolist() == [5]


@pytest.mark.slow
def test_a_model_that_is_called_by_keywords_is_the_model(tmp_path):
    named = """
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
        self.last = nn.Linear(2, 3)

    def forward(self, *, text):
        return self.last(self.inner(text))


whole = Named()
descent = torch.optim.SGD(whole.parameters(), lr=0.1)
for _ in range(3):
    whole(text=torch.ones(5, 4)).sum().backward()
    descent.step()
"""
    done = run(SCRIPT.split("model =")[0] + named, tmp_path)
    assert done.returncode == 0, done.stderr
    model = steps.model(tmp_path)
    assert (model.batch, model.parameters, model.layers) == (5, 10 + 9, ("Linear", "Linear"))
    assert (model.input_size, model.output_size) == (4, 3)
