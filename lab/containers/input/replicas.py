"""Turns containers into workloads of replicas, whose number the Horizontal Pod Autoscaler changes.

For: the columns of `twin.containers.replicas`. Not for: scaling, nor for the section of the scenario
(sections.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from control.allocator.hpa import HpaSettings
from lab.containers.input.sections import HpaInput
from twin.containers.model import Replication, Workload


def replicated(workload: Workload, hpa: HpaInput, own_hosts: bool) -> Workload:
    """Return the workload with max_replicas columns for each container, NAME-0, NAME-1, …

    Each replica is profiled as one of the first replicas that share the demand. own_hosts: whether each
    replica has a host of its own; otherwise they are placed on the hosts in turn.
    """
    settings = HpaSettings(**hpa.model_dump(exclude_none=True, exclude={"replicas"}))
    count, most = len(workload.names), settings.max_replicas
    of, number = np.repeat(np.arange(count), most), np.tile(np.arange(most), count)
    hosts = count * most if own_hosts else len(np.unique(workload.host))
    demand = workload.demand_cores
    return replace(
        workload,
        names=tuple(f"{workload.names[index]}-{replica}" for index, replica in zip(of, number, strict=True)),
        app=workload.app[of],
        demand_cores=demand[:, of] / hpa.replicas,
        memory_bytes=workload.memory_bytes[:, of],
        present=workload.present[:, of],
        threads=workload.threads[of],
        host=np.arange(count * most) % hosts,
        host_cores=workload.host_cores[of],
        weight=workload.weight[of],
        peak_cores=workload.peak_cores[of] / hpa.replicas,
        peak_bytes=workload.peak_bytes[of],
        replication=Replication(of, number, demand, hpa.replicas, settings),
    )
