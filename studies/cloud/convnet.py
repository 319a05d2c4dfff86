"""What FC²'s network takes of a parameter server's port on each EC2 type, told by sources other than FC².

For: `use_bps`, the b_t of Scala-Opt in the experiments F1–F4, which the source measured and does not print.
Not for: any other network. The network is TensorFlow's CIFAR-10 tutorial (that of cuda-convnet, as FC² names
it): 1,068,298 parameters and 19.5 million multiply-adds per image. Three times those make a training step.
GPUs: batch latencies of a network of nearly the same size (CIFAR10_CNN, 32 px) on the same GPUs, from PROFET
(CLOUD 2022, MIT). CPUs: peak of AVX2 cores at the clock that ECU tell, times the share of the peak that a
network like it reached on one core (measured with PyTorch on an EPYC core at 2.6 GHz, 2026-11-21: 44.2
GFLOP/s at batch 64, 48.8 at 128). No number here is fitted to FC²'s figures, but its
counts were known when the form was chosen among a few that physics allows (both directions of a port or one,
the clocks of burstable types), so F1–F4 are no blind test. The network's size is from memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from traces.catalogue.catalogue import Listing
from twin.cloud.performance import (
    BYTES_PER_PARAMETER,
    Work,
    asynchronous_steps_per_s,
    compute_s,
    server_s,
    server_traffic_bps,
    step_s,
    work_of,
)
from twinbed import ScenarioError

Real = NDArray[np.float64]

PARAMETERS = 1_068_298
OPERATIONS_PER_IMAGE = 3 * 2 * 19.5e6
"""Forward once, backward twice; two operations per multiply-add."""
AVX2_OPERATIONS_PER_CYCLE = 32
"""Two fused multiply-adds of eight 32-bit floats: Haswell, Broadwell and the EPYC that was measured."""
REACHED = {
    64: 44.2e9 / (2.596e9 * AVX2_OPERATIONS_PER_CYCLE),
    128: 48.8e9 / (2.596e9 * AVX2_OPERATIONS_PER_CYCLE),
}
"""Share of a core's peak by batch size, as measured; larger batches reach what 128 does."""
VCPUS_PER_CORE = 2
CLOCK_HZ_PER_ECU = 2.9e9 / 4
"""c4: 4 ECU per vCPU at 2.9 GHz (Amazon's figures)."""
BURST_CLOCK_HZ = 3.0e9
"""t2 has no ECU: an assumption, a core that has credits at its usual turbo clock."""
GPU_LATENCIES_S = {
    "NVIDIA K80": {16: 0.0098, 32: 0.0113, 64: 0.0154, 128: 0.0246, 256: 0.0416},
    "NVIDIA M60": {16: 0.0037, 32: 0.0051, 64: 0.0075, 128: 0.0125, 256: 0.0214},
}
"""By GPU and batch size: medians of nine runs on p2.xlarge and g3s.xlarge (PROFET, MIT)."""


def work(listing: Listing, batch: int) -> Work:
    """One worker's step on a type. Raises ScenarioError for a GPU that nobody measured."""
    size = PARAMETERS * BYTES_PER_PARAMETER
    if listing.gpus:
        if listing.gpu_model not in GPU_LATENCIES_S:
            known = ", ".join(GPU_LATENCIES_S)
            raise ScenarioError(
                f"{listing.name}: no latency of {listing.gpu_model} is known, only of {known}"
            )
        latencies = GPU_LATENCIES_S[listing.gpu_model]
        return work_of(list(latencies.values()), list(latencies), PARAMETERS)
    clock = BURST_CLOCK_HZ if np.isnan(listing.cpu_speed) else listing.cpu_speed * CLOCK_HZ_PER_ECU
    reached = REACHED[64 if batch < 128 else 128]
    peak = listing.vcpus / VCPUS_PER_CORE * clock * AVX2_OPERATIONS_PER_CYCLE
    return Work(0.0, OPERATIONS_PER_IMAGE / (peak * reached), size)


def use_bps(listing: Listing, batch: int, server_bps: float) -> float:
    """What one worker takes of the port of a server of its own, bit/s: FC²'s benchmark is just that."""
    one = work(listing, batch)
    return float(server_traffic_bps(_alone_s(listing, one, batch, server_bps), one.bytes))


def run_s(listing: Listing, batch: int, workers: int, server_bps: float, images: float) -> float:
    """Seconds to process so many images, asynchronous workers sharing one server's port."""
    one = work(listing, batch)
    alone = _alone_s(listing, one, batch, server_bps)
    return float(images / batch / asynchronous_steps_per_s(alone, one.bytes, workers, server_bps))


def _alone_s(listing: Listing, one: Work, batch: int, server_bps: float) -> Real:
    return step_s(compute_s(one, batch), server_s(one.bytes, 1, listing.network_bps, server_bps))
