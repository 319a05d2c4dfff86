"""The recorded workloads' programs do what they say, in small."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.containers.input.recording import from_file
from tests.patience import PATIENCE_S

FOLDER = Path(__file__).parents[2] / "scenarios" / "recordings"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_of_containers_is_valid(path: Path) -> None:
    request = from_file(path, None)
    assert request.name == path.stem
    for spec in request.specs:
        assert (FOLDER / next(word for word in spec.command if word.endswith(".py"))).exists()


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make")
def test_the_batch_job_builds_and_runs() -> None:
    command = [sys.executable, FOLDER / "compile_batch.py", "--rounds", "1", "--units", "2"]
    subprocess.run(command, check=True)


def test_the_load_arrives_at_the_stated_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    import random

    import bursty_load

    times = bursty_load.arrivals(400, 600, random.Random(0))
    calm = sum(at % 20 < 10 for at in times)
    # 200 s at 50/s and 200 s at 650/s; five standard deviations of a Poisson count.
    assert abs(calm - 10_000) < 500
    assert abs(len(times) - calm - 130_000) < 1_800
    assert times == sorted(times)


@pytest.mark.slow
def test_the_service_answers_under_load() -> None:
    roles = ("frontend", "backend", "cache")  # the frontend waits for the others
    # An address of the loopback network that nothing else has bound these ports on.
    environment = {**os.environ, **{f"TWINBED_ADDRESS_{role.upper()}": "127.77.0.1" for role in roles}}
    servers = [
        subprocess.Popen([sys.executable, FOLDER / "bursty_service.py", role], env=environment)
        for role in roles
    ]
    try:
        command = [sys.executable, FOLDER / "bursty_load.py", "--seconds", "1"]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment, timeout=PATIENCE_S
        )
    finally:
        for each in servers:
            each.terminate()
            each.wait()
    assert "requests in" in done.stdout


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch (the extra cloud)")
def test_the_training_trains() -> None:
    command = [sys.executable, FOLDER / "ddp_training.py", "--seconds", "0", "--images", "500"]
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment, timeout=PATIENCE_S
    )
    assert "epoch 0 loss" in done.stdout
