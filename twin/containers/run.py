"""Runs a workload in virtual time: the containers that it needs, under the control loop.

For: `simulate`. Not for: the loop itself (simulation.py), nor what happens inside the containers (fluid.py,
job.py, requests/physics.py).
"""

from __future__ import annotations

import numpy as np

from control.allocator.model import History
from control.allocator.ports import Allocator, Compilable, SpanAware
from twin.containers.compiled import compiled
from twin.containers.job import replayed
from twin.containers.model import Machine, Outcome, Workload
from twin.containers.physics import Physics
from twin.containers.recording import Keep, Recorder
from twin.containers.replicas import Replicas, Scaler
from twin.containers.requests.model import RequestWorkload
from twin.containers.simulation import ControlLoop
from twin.containers.telling import Progress


def simulate(
    workload: Workload | RequestWorkload,
    allocator: Allocator,
    machine: Machine,
    *,
    seed: np.random.SeedSequence,
    record: bool = True,
    progress: Progress | None = None,
    profile: History | None = None,
    keep: Keep | None = None,
) -> Outcome:
    """Run `workload` under `allocator` on `machine`, one period after the other.

    record: keep the series (58 bytes per container-period, 62 with CPU requests). progress: function called
    with the finished fraction (0…1] at most 20 times per second of real time; an exception of it ends the
    simulation and passes through. profile: use of the containers, in the workload's order, in their profile,
    told when they join. keep: function that gets the series, in the workload's blocks; the outcome then has
    no series. A workload in blocks that is recorded needs it. The same arguments and seed give the same
    outcome to the bit (except decide_s). Raises InvariantError naming container and period for a workload
    that is not finite or negative, and for an allocator that breaks its port's promises. The allocator raises
    ScenarioError when the containers do not fit.
    """
    if isinstance(allocator, Compilable):
        allocator.compile(compiled)
    physics: Physics
    workload_of = None
    if isinstance(workload, RequestWorkload):
        from twin.containers.requests.physics import Requests

        # The loop keeps the random stream that it also has with a trace.
        physics = Requests(workload, machine, seed.spawn(1)[0], windowed=isinstance(allocator, SpanAware))
    elif workload.replication is not None:
        physics = Replicas(workload, machine, workload.replication)
        workload_of = workload.replication.of
    else:
        physics, machine = replayed(workload, machine)
    block_rows = workload.blocks.block_rows if isinstance(workload, Workload) and workload.blocks else 0
    recorder = Recorder(physics.periods, len(physics.group), block_rows, keep) if record else None
    loop = ControlLoop(physics, allocator, machine, seed, recorder, profile, workload_of)
    if isinstance(physics, Replicas):
        loop.env.process(Scaler(loop, physics, machine).run())
    return loop.run(progress)
