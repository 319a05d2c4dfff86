"""The data-parallel training job of the recordings as containers that can run beside others.

For: starting scenarios/recordings/ddp_training.py (one master, workers, gloo over loopback) under a control
loop. Not for: recording it (ddp_training.yaml), nor for what it trains. A rank that is killed takes the job
with it, as gloo has no spare ones: the others end with an error.
"""

from __future__ import annotations

import sys
from pathlib import Path

from testbed.containers.host.container import ContainerSpec
from twinbed import ScenarioError

PROGRAM = Path(__file__).resolve().parents[4] / "scenarios" / "recordings" / "ddp_training.py"


def training_job(
    address: str, *, workers: int = 2, seconds: float = 170.0, images: int = 6000
) -> list[ContainerSpec]:
    """The containers `master`, `worker-1`, …; all have to be started for any to begin.

    address: a loopback address of the job's own (testbed.containers.services.deploy.loopback_address), so
    that jobs side by side do not meet; seconds: no epoch begins after this time; images: per rank and epoch.
    ScenarioError for fewer than one worker, or times or images that are not above 0.
    """
    if workers < 1 or not seconds > 0 or images < 1:
        raise ScenarioError(
            f"training job with {workers} workers, {seconds:g} s, {images} images: all must be above 0"
        )
    environment = {
        "WORLD_SIZE": str(workers + 1),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TWINBED_ADDRESS_MASTER": address,
    }
    command = (sys.executable, "-u", str(PROGRAM), "--seconds", f"{seconds:g}", "--images", str(images))
    names = ["master", *(f"worker-{number}" for number in range(1, workers + 1))]
    return [
        ContainerSpec(name, command, app="ddp_training", env={**environment, "RANK": str(rank)})
        for rank, name in enumerate(names)
    ]
