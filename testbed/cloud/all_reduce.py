"""A process of a job that all-reduces tensors of several sizes again and again, and records the times.

For: α and β between workers under the limits of a type (stalls.py starts it as a job). Not for: fitting them.
It writes to $TWINBED_STEPS as the hook does, and imports nothing of twinbed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

SIZES = (1 << 12, 1 << 18, 1 << 22)
"""Sizes of the tensors, B. They show the latency, a bias tensor, and the gradients of a layer."""


def main() -> None:
    """All-reduce until the process is ended. Rank 0 records the times."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo")
    tensors = [torch.zeros(size // 4) for size in SIZES]
    with Path(os.environ["TWINBED_STEPS"], f"{dist.get_rank()}.steps").open("wb", 0) as file:
        while True:
            for tensor in tensors:
                dist.all_reduce(tensor)
                file.write(time.monotonic_ns().to_bytes(8, "little"))


if __name__ == "__main__":
    main()
