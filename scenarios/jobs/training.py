"""The training loop of the jobs in this folder: PyTorch DDP over gloo on data that the jobs generate
themselves.

For: seven small jobs that really train, and that a cluster may stop and start again. Not for: good models.
Nothing here depends on twinbed. Rank, size and the master's address come from the environment variables of
torch.distributed.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

Batch = tuple[Tensor, Tensor]
Make = Callable[[int, torch.Generator], Batch]

DATA_BYTES = 64 << 20
"""Size of the file that --data FILE writes where there is none: more than a measured run reads."""


def train(
    model: Callable[[], nn.Module],
    make: Make,
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
    parser.add_argument(
        "--data",
        default="made",
        metavar="made|kept|FILE",
        help="make every batch, keep the first in memory, or read samples from a file, written if missing",
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="file to go on from; SIGTERM saves to it and ends the job"
    )
    parser.add_argument("--every", type=int, default=100, help="steps between two saves to --checkpoint")
    options = parser.parse_args()
    saved = Checkpoint(options.checkpoint, options.every) if options.checkpoint else None
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(0)
    if size > 1:
        dist.init_process_group("gloo")
    make = source(make, options.data, rank, size)
    for line in steps(model(), make, options.batch, options.steps, options.lr, optimizer, rank, size, saved):
        if rank == 0:
            print(line, flush=True)
    if size > 1:
        dist.destroy_process_group()


def source(make: Make, data: str, rank: int, size: int) -> Make:
    """Return what gives the batches of --data."""
    if data == "kept":
        held: list[Batch] = []

        def kept(count, generator):
            if not held:
                held.append(make(count, generator))
            return held[0]

        return kept
    return make if data == "made" else File(Path(data), make, rank, size).batch


class File:
    """Samples in a file: records of a sample and its label, read one by one in a random order."""

    def __init__(self, path: Path, make: Make, rank: int, size: int) -> None:
        self.like = [part[0] for part in make(1, torch.Generator())]
        self.sizes = [part.nbytes for part in self.like]
        self.rank, self.size, self.epoch, self.order = rank, size, 0, []
        if rank == 0 and not path.exists():
            self._write(path, make)
        if size > 1:
            dist.barrier()
        self.file = os.open(path, os.O_RDONLY)
        self.count = os.fstat(self.file).st_size // sum(self.sizes)

    def _write(self, path, make):
        generator, whole = torch.Generator().manual_seed(0), path.with_suffix(".part")
        with whole.open("wb") as file:
            while file.tell() < DATA_BYTES:
                parts = make(500, generator)
                rows = [part.reshape(500, -1).contiguous().view(torch.uint8) for part in parts]
                file.write(torch.cat(rows, dim=1).numpy().tobytes())
        whole.replace(path)

    def batch(self, count, _generator):
        """Return the next samples of this rank's share; each epoch has an order of its own."""
        while len(self.order) < count:
            drawn = torch.randperm(self.count, generator=torch.Generator().manual_seed(self.epoch))
            self.order += drawn[self.rank :: self.size].tolist()
            self.epoch += 1
        chosen, self.order = self.order[:count], self.order[count:]
        record = sum(self.sizes)
        read = bytearray(b"".join(os.pread(self.file, record, row * record) for row in chosen))
        columns = torch.frombuffer(read, dtype=torch.uint8).view(count, record).split(self.sizes, dim=1)
        return tuple(
            column.contiguous().view(like.dtype).reshape(count, *like.shape)
            for column, like in zip(columns, self.like, strict=True)
        )


class Checkpoint:
    """Saves a job's state to a file after every so many steps, and when SIGTERM asks the job to end."""

    def __init__(self, path: Path, every: int) -> None:
        self.path, self.every, self.asked = path, every, False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number, _frame):
        self.asked = True

    def load(self, parts, generator: torch.Generator, rank: int) -> int:
        """Take the state of the parts from the file; return how many steps are done, 0 without a file."""
        if not self.path.exists():
            return 0
        state = torch.load(self.path)
        for part, values in zip(parts, state["parts"], strict=True):
            part.load_state_dict(values)
        # The file has rank 0's random numbers only; the others draw anew.
        generator.manual_seed(1 + rank + 1000 * state["done"])
        if rank == 0:
            generator.set_state(state["generator"])
        return state["done"]

    def after(self, done: int, parts, generator: torch.Generator, rank: int, size: int) -> bool:
        """Save if it is time to; return whether the job is to end, on which all processes agree."""
        ends = torch.tensor(float(self.asked))
        if size > 1:
            dist.all_reduce(ends, dist.ReduceOp.MAX)
        if rank == 0 and (ends or done % self.every == 0):
            whole = self.path.with_suffix(".part")
            parts = [part.state_dict() for part in parts]
            torch.save({"parts": parts, "generator": generator.get_state(), "done": done}, whole)
            whole.replace(self.path)
        return bool(ends)


def steps(
    plain: nn.Module,
    make: Make,
    batch: int,
    count: int,
    rate: float,
    optimizer: type[torch.optim.Optimizer],
    rank: int = 0,
    size: int = 1,
    saved: Checkpoint | None = None,
):
    """Train, and yield a line after every tenth step: step, loss, accuracy on the batch."""
    model = DistributedDataParallel(plain) if size > 1 else plain
    model.train()
    descent = optimizer(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(1 + rank)
    done = saved.load((plain, descent), generator, rank) if saved else 0
    for step in range(done, count):
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
        if saved and saved.after(step + 1, (plain, descent), generator, rank, size):
            return
