"""The table of GPUs: peak speed, memory, and links of their usual hosts.

For: defaults of step-time questions (configurations.py). A question may override any value. Not for: measured
speeds, which steptime.py learns. Source: NVIDIA's data sheets of V100, A100, H100 and H200 (dense tensor-core
rates, no sparsity); the network is that of the usual cloud host, one adapter per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from twinbed import ScenarioError


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU in its usual host.

    flops: peak of 16-bit tensor cores, FLOP/s.
    flops_8: peak of 8-bit tensor cores, FLOP/s; 0 if it has none.
    memory_bytes: memory, bytes.
    memory_bytes_s: bandwidth of the memory, bytes/s.
    link_bytes_s: bandwidth of a GPU to the others of its host, one direction, bytes/s.
    network_bytes_s: bandwidth of a whole host to the network, one direction, bytes/s.
    """

    flops: float
    flops_8: float
    memory_bytes: float
    memory_bytes_s: float
    link_bytes_s: float
    network_bytes_s: float


GPUS = {
    "v100_16gb": Gpu(125e12, 0, 16e9, 0.9e12, 150e9, 12.5e9),
    "v100_32gb": Gpu(125e12, 0, 32e9, 0.9e12, 150e9, 12.5e9),
    "a100_40gb": Gpu(312e12, 0, 40e9, 1.555e12, 300e9, 200e9),
    "a100_80gb": Gpu(312e12, 0, 80e9, 2.039e12, 300e9, 200e9),
    "h100_80gb": Gpu(989e12, 1979e12, 80e9, 3.35e12, 450e9, 400e9),
    "h200_141gb": Gpu(989e12, 1979e12, 141e9, 4.8e12, 450e9, 400e9),
}


SPEEDS = {
    "NVIDIA K80": (4.4e12, 0.24e12),
    "NVIDIA M60": (4.8e12, 0.16e12),
    "NVIDIA P40": (11.8e12, 0.346e12),
    "NVIDIA P100": (9.3e12, 0.732e12),
    "NVIDIA V100 16GB": (15.7e12, 0.9e12),
    "NVIDIA V100 32GB": (15.7e12, 0.9e12),
    "NVIDIA T4": (8.1e12, 0.32e12),
    "NVIDIA T4G": (8.1e12, 0.32e12),
    "NVIDIA A10": (31.2e12, 0.6e12),
    "NVIDIA A10G": (31.2e12, 0.6e12),
    "NVIDIA L4": (30.3e12, 0.3e12),
    "NVIDIA A100 40GB": (19.5e12, 1.555e12),
    "NVIDIA A100 80GB": (19.5e12, 2.039e12),
    "NVIDIA H100": (67e12, 3.35e12),
    "NVIDIA H200": (67e12, 4.8e12),
}
"""Name in the catalogue → 32-bit peak, FLOP/s, and bandwidth of the memory, bytes/s. The source is NVIDIA's
data sheets. K80 and M60 are boards of two GPUs; the values are those of one GPU."""


def relative_speed(model: str) -> float:
    """Return the relative speed of one GPU, without a unit: the geometric mean of peak and bandwidth.

    It is NaN for a model that is not in SPEEDS. A job is bound by either of the two, so the mean is a
    compromise.
    """
    flops, bytes_s = SPEEDS.get(model, (float("nan"), float("nan")))
    return float((flops * bytes_s) ** 0.5)


def gpu(name: str) -> Gpu:
    """Return the GPU of that name. Raises ScenarioError for a name that is not in the table."""
    if name not in GPUS:
        raise ScenarioError(f"no GPU {name!r} is known; there are {', '.join(GPUS)}")
    return GPUS[name]
