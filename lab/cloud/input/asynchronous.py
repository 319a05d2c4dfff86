"""The section `asynchronous` of a job file: spotDNN's inputs about a job with a parameter server.

For: `twinbed recommend JOB --method spotdnn`. Not for: predicting (control.recommender.spotdnn), nor the
constants.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from lab.ask.section import Section


class WorkerInput(Section):
    """A type of worker."""

    samples: PositiveFloat = Field(description="Samples of one iteration of one worker, over all its GPUs.")
    alone_s: PositiveFloat
    """Measured time of an iteration of one worker that trains alone, s."""
    gpus: PositiveInt = Field(default=1, description="GPUs of a worker; a worker on CPUs counts as 1.")
    quota: NonNegativeInt = Field(default=10, description="Most workers of this type.")
    spot_usd_h: PositiveFloat | None = None
    """Spot price, USD per hour; null: the catalogue's price."""
    on_demand_usd_h: PositiveFloat | None = None
    """On-demand price, USD per hour; null: the catalogue's price, if it has one."""


class AsynchronousInput(Section):
    """Constants of spotDNN's predictor (IWQoS 2023, §III), fitted to short profiles of the job."""

    push_mb: PositiveFloat = Field(description="Size of one push of gradients, MB.")
    server_mb_s: PositiveFloat = Field(description="Bandwidth of the parameter server, MB/s.")
    worker_mb_s: PositiveFloat = Field(description="Bandwidth of a worker without contention, MB/s.")
    pcie_mb_s: PositiveFloat = Field(default=10_000.0, description="Bandwidth of a worker's PCIe, MB/s.")
    contention: Annotated[list[float], Field(min_length=2, max_length=2)]
    """α1 and β1: n workers contend with the share α1·√n + β1."""
    gamma: Annotated[list[float], Field(min_length=5, max_length=5)]
    """γ1 to γ5 of the loss curve."""
    unequal: bool = Field(default=True, description="Whether unequal speeds slow convergence in this curve.")
    types: dict[str, WorkerInput] = Field(min_length=1, description="Types of workers by name.")
