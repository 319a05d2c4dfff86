"""The section `asynchronous` of a job file: spotDNN's inputs about a job with a parameter server.

For: `twinbed recommend JOB --method spotdnn`. Not for: predicting (control.recommender.spotdnn), nor fitting
constants to profiles (control.recommender.spotdnn_fit).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from lab.ask.section import Section


class WorkerInput(Section):
    """A type of worker."""

    samples: PositiveFloat | None = None
    """Samples of one iteration of one worker, over all its GPUs; null: what fits memory_gib."""
    memory_gib: PositiveFloat | None = Field(default=None, description="Memory of a GPU, GiB.")
    alone_s: PositiveFloat
    """Measured time of an iteration of one worker that trains alone, s."""
    gpus: PositiveInt = Field(default=1, description="GPUs of a worker; a worker on CPUs counts as 1.")
    quota: NonNegativeInt = Field(default=10, le=1_000_000, description="Most workers of this type.")
    spot_usd_h: PositiveFloat | None = None
    """Spot price, USD per hour; null: the catalogue's price."""
    on_demand_usd_h: PositiveFloat | None = None
    """On-demand price, USD per hour; null: the catalogue's price, if it has one."""


class ProfileInput(Section):
    """A short training of a cluster, to which constants are fitted."""

    workers: dict[str, PositiveInt] = Field(min_length=1, description="Number of workers by type.")
    bandwidth_mb_s: PositiveFloat | None = None
    """Mean bandwidth of one of its workers, MB/s."""
    losses: list[Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(default=[])
    """Pairs of a number of pushes and the smoothed loss after them."""


class AsynchronousInput(Section):
    """Constants of spotDNN's predictor (IWQoS 2023, §III), or short profiles of the job to fit them to."""

    push_mb: PositiveFloat = Field(description="Size of one push of gradients, MB.")
    server_mb_s: PositiveFloat = Field(description="Bandwidth of the parameter server, MB/s.")
    worker_mb_s: PositiveFloat = Field(description="Bandwidth of a worker without contention, MB/s.")
    pcie_mb_s: PositiveFloat = Field(default=10_000.0, description="Bandwidth of a worker's PCIe, MB/s.")
    contention: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """α1 and β1: n workers contend with the share α1·√n + β1; null: fitted to the profiles' bandwidths."""
    gamma: Annotated[list[float], Field(min_length=5, max_length=5)] | None = None
    """γ1 to γ5 of the loss curve; null: fitted to the profiles' losses."""
    memory: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """α2 and β2: a GPU with m GiB fits α2·m + β2 samples; for types without `samples`."""
    profiles: list[ProfileInput] = Field(default=[], description="Short trainings of clusters.")
    unequal: bool = Field(default=True, description="Whether unequal speeds slow convergence in this curve.")
    types: dict[str, WorkerInput] = Field(min_length=1, description="Types of workers by name.")

    @model_validator(mode="after")
    def _complete(self) -> AsynchronousInput:
        for name, worker in self.types.items():
            if worker.samples is None and (worker.memory_gib is None or self.memory is None):
                raise ValueError(f"types.{name}.samples: missing; or give its memory_gib, and memory")
        for key, given, measured in (
            ("contention", self.contention, any(row.bandwidth_mb_s for row in self.profiles)),
            ("gamma", self.gamma, any(row.losses for row in self.profiles)),
        ):
            if given is None and not measured:
                raise ValueError(f"{key}: missing; or give profiles that show it")
        for row in self.profiles:
            if any(pushes <= 0 for pushes, _ in row.losses):
                raise ValueError("profiles.losses: a number of pushes is not above 0")
            if unknown := sorted({*row.workers} - {*self.types}):
                known = ", ".join(self.types)
                raise ValueError(f"profiles.workers: no type {unknown[0]!r}; there are {known}")
        return self
