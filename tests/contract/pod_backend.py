"""Containers of a live Podman pod, attached by name, as a backend of the contract.

Each run is a pod that `podman play kube` makes. Its containers run the workload's scripts with this machine's
own Python, in a chroot of a bind mount of the root. All containers run from the beginning. A container that
joins later is attached later, and one that leaves is detached.
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from testbed.containers.attach import finding
from testbed.containers.cgroup.attached import attach
from testbed.containers.cgroup.drivers import Driver
from testbed.containers.host.fleet import AttachedSpec, Managed
from testbed.containers.host.loop import Settings, control
from tests.contract.contract_backends import Linux, Ran, in_force_cores, scripts_of
from tests.testbed.containers.attach.engines_here import IMAGE, running

_ROOT = Path(__file__).parents[2]


class LinuxPod(Linux):
    """Real cgroups that Podman made."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        super().__init__(driver, folder)
        self.name = f"linux-podman-v{driver.version}"
        self._tasks = ExitStack()
        self._removals: list[Future[str]] = []
        # Names of UNIX sockets must be short.
        place = Path(self._tasks.enter_context(tempfile.TemporaryDirectory(prefix="tb-c")))
        try:
            self._podman = self._tasks.enter_context(running("podman", place))
            self._remover = self._tasks.enter_context(ThreadPoolExecutor(1))
        except BaseException:
            self._tasks.close()
            raise

    def close(self) -> None:
        with self._tasks:
            for removal in self._removals:
                removal.result()

    def run(self, workload, allocator) -> Ran:
        self._runs += 1
        folder = self._folder / str(self._runs)
        scripts = scripts_of(workload, folder)
        groups: dict[str, object] = {}
        sums: list[float] = []
        managed = [self._attached(each, groups) for each in scripts.containers]
        self._play(folder, [each.spec.command for each in scripts.containers], workload.names)
        try:
            observed = control(
                managed,
                workload.applications,
                allocator,
                Settings(
                    logs=folder / "logs",
                    host_cores=float(workload.host_cores.max()),
                    host_memory_bytes=workload.host_memory_bytes,
                    report_interval_s=workload.report_interval_s,
                ),
                client=scripts,
                on_tick=lambda progress: sums.append(
                    sum(filter(np.isfinite, map(in_force_cores, groups.values())))
                ),
                driver=self._driver,
            )
        finally:
            # The processes end at once. Podman tidies up for seconds, beside the next run.
            removal = self._remover.submit(self._podman.podman, "pod", "rm", "-f", "-t", "0", self._pod)
            self._removals.append(removal)
        return Ran(observed, sums)

    @property
    def _pod(self) -> str:
        return f"contract{self._runs}"

    def _attached(self, asked: Managed, groups: dict[str, object]) -> Managed:
        name, pod = asked.spec.name, self._pod

        def open_group():
            (container,) = [each for each in self._podman.engine.containers() if each.name == f"{pod}-{name}"]
            found = finding.located(self._podman.engine, container, self._driver)
            groups[name] = attach(found.paths.get("") or found.paths, self._driver)
            return groups[name]

        return replace(asked, spec=AttachedSpec(name, open_group))

    def _play(self, folder: Path, commands, names) -> None:
        inside = ["/bin/busybox", "chroot", "/host", "/usr/bin/env", f"PYTHONPATH={_ROOT}"]
        containers = [
            {
                "name": name,
                "image": f"localhost/{IMAGE}",
                "imagePullPolicy": "Never",
                "command": [*inside, sys.executable, *command[1:]],
                "volumeMounts": [{"name": "host", "mountPath": "/host"}],
            }
            for name, command in zip(names, commands, strict=True)
        ]
        spec = {
            "hostNetwork": True,
            "hostPID": True,
            "restartPolicy": "Never",
            "volumes": [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
            "containers": containers,
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self._pod}, "spec": spec}
        (folder / "pod.json").write_text(json.dumps(pod))
        self._podman.podman("play", "kube", str(folder / "pod.json"))
