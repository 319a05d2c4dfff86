"""Describes the recorded data-parallel training job as containers that can run beside others.

For: starting scenarios/recordings/ddp_training.py (one master, workers, gloo over loopback) under a
control loop. Not for: recording it (ddp_training.yaml), nor its training. If a rank is killed, the others
end with an error, because gloo has no spare ranks.
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
    """Return the containers `master`, `worker-1`, …. Training begins when all of them have started.

    address: a loopback address of the job's own (testbed.containers.services.deploy.loopback_address), so
    that jobs side by side do not meet; seconds: no epoch begins after this time; images: per rank and
    epoch. Raises ScenarioError for fewer than one worker, and for times or images that are not above 0.
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
