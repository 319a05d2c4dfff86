"""The training loop of the jobs in this folder: PyTorch DDP over gloo on data that the jobs generate
themselves.

For: seven small jobs that really train. Not for: good models. Nothing here depends on twinbed. Rank, size and
the master's address come from the environment variables of torch.distributed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Batch = tuple[Tensor, Tensor]


def train(
    model: Callable[[], nn.Module],
    make: Callable[[int, torch.Generator], Batch],
    *,
    batch: int,
    rate: float,
    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam,
) -> None:
    """Train for --steps steps of --batch samples per process; rank 0 prints loss and accuracy.

    make: returns n samples and their labels, or a label per position; −1 means no label.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=batch, help="samples per process and step")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=rate)
    options = parser.parse_args()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(0)
    if size > 1:
        dist.init_process_group("gloo")
    for line in steps(model(), make, options.batch, options.steps, options.lr, optimizer, rank, size):
        if rank == 0:
            print(line, flush=True)
    if size > 1:
        dist.destroy_process_group()


def steps(
    plain: nn.Module,
    make: Callable[[int, torch.Generator], Batch],
    batch: int,
    count: int,
    rate: float,
    optimizer: type[torch.optim.Optimizer],
    rank: int = 0,
    size: int = 1,
):
    """Train, and yield a line after every tenth step: step, loss, accuracy on the batch."""
    model = DistributedDataParallel(plain) if size > 1 else plain
    model.train()
    descent = optimizer(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(1 + rank)
    for step in range(count):
        samples, labels = make(batch, generator)
        descent.zero_grad()
        scores = model(samples).flatten(0, -2)
        loss = nn.functional.cross_entropy(scores, labels.flatten(), ignore_index=-1)
        loss.backward()
        descent.step()
        if step % 10 == 9:
            labelled = labels.flatten() >= 0
            right = (scores.argmax(-1) == labels.flatten())[labelled].float().mean()
            yield f"step {step + 1} loss {float(loss.detach()):.3f} accuracy {float(right):.3f}"
