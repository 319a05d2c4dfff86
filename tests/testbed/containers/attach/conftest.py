"""Docker and Podman, started once for all tests here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.containers.attach.engines_here import IMAGE, Running, running

POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: shop, labels: {{app: shop}}}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: localhost/{IMAGE}
    imagePullPolicy: Never
    command: [/bin/sleep, "1000"]
    resources: {{limits: {{cpu: 500m, memory: 64Mi}}}}
  - name: db
    image: localhost/{IMAGE}
    imagePullPolicy: Never
    command: [/bin/sleep, "1000"]
"""


@pytest.fixture(scope="module")
def docker(cgroups: None) -> Iterator[Running]:
    """A dockerd, which answers at $DOCKER_HOST while `engines` is in use."""
    # Names of UNIX sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="tb-d"))
    try:
        with running("docker", folder) as here:
            yield here
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def podman(cgroups: None) -> Iterator[Running]:
    """A Podman with the pod `shop`."""
    folder = Path(tempfile.mkdtemp(prefix="tb-p"))
    try:
        with running("podman", folder) as here:
            (folder / "pod.yaml").write_text(POD)
            here.podman("play", "kube", str(folder / "pod.yaml"))
            yield here
    finally:
        shutil.rmtree(folder, ignore_errors=True)
