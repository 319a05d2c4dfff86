"""Run one process of a data-parallel training, PyTorch DDP over gloo: `python -m ….ddp_worker JOB.json`.

For: training.py, which starts one in every application's namespace. Not for: training a good model. Source:
PyTorch's DistributedDataParallel. Batches follow from (seed, rank, iteration) alone, and one thread computes.
So a job computes the same to the bit at every run, also from a checkpoint on. Exit codes: 0: all iterations
are done; 3: the group failed.

JOB.json is written by training.py. Every iteration writes a line of the record when it ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 10
SIDE = 32
GROUP_FAILED = 3
"""Exit code if a peer has ended, or is silent for longer than the group waits."""

_NOISE = 4.0
"""Standard deviation of the noise that hides a pattern; the pattern's own is 1."""


class Net(nn.Module):
    """A convolutional network of about 270,000 parameters, with 1.1 MB of gradients per iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (SIDE // 4) ** 2, 128),
            nn.ReLU(),
            nn.Linear(128, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, float[batch, CLASSES], of images, float[batch, 3, SIDE, SIDE]."""
        logits: Tensor = self.layers(images)
        return logits


class Batches:
    """Noisy images of CLASSES patterns; the same for the same seed, rank and iteration."""

    def __init__(self, seed: int, rank: int, world: int, size: int) -> None:
        self._patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))
        self._first, self._world, self._size = (seed << 32) + 1 + rank, world, size

    def batch(self, iteration: int) -> tuple[Tensor, Tensor]:
        """Return images, float[size, 3, SIDE, SIDE], and labels, int64[size]."""
        generator = torch.Generator().manual_seed(self._first + iteration * self._world)
        labels = torch.randint(CLASSES, (self._size,), generator=generator)
        noise = torch.randn(self._size, 3, SIDE, SIDE, generator=generator)
        return (self._patterns[labels] + _NOISE * noise) / _NOISE, labels


def train(spec: dict[str, Any], record: TextIO) -> None:
    """Run the iterations that are left. Raises RuntimeError, as torch does, if the group fails."""
    torch.manual_seed(spec["seed"])
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    batches = Batches(spec["seed"], spec["rank"], spec["world"], spec["batch"])
    saved = Path(spec["checkpoint"])
    first = _resume(saved, model, optimizer)
    _say(record, ready_ns=time.monotonic_ns(), first=first)
    for iteration in range(first, spec["iterations"]):
        began_ns = time.monotonic_ns()
        images, labels = batches.batch(iteration)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        ended_ns = time.monotonic_ns()
        _say(record, iteration=iteration, began_ns=began_ns, ended_ns=ended_ns, loss=float(loss.detach()))
        if spec["save_every"] and (iteration + 1) % spec["save_every"] == 0 and spec["rank"] == 0:
            _save(saved, iteration + 1, model, optimizer)
            _say(record, saved=iteration + 1, save_ns=time.monotonic_ns() - ended_ns)
    # No process leaves while another still needs what it sent last.
    dist.barrier()
    _say(record, digest=_digest(model))


def _resume(saved: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Restore the checkpoint, if there is one, and return the first iteration to do."""
    if not saved.exists():
        return 0
    state = torch.load(saved, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["done"])


def _save(saved: Path, done: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint completely or not at all, even if the process is ended meanwhile."""
    unfinished = saved.with_suffix(".unfinished")
    state = {"done": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, unfinished)
    unfinished.replace(saved)


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for value in model.state_dict().values():
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def _say(record: TextIO, **line: object) -> None:
    record.write(json.dumps(line) + "\n")
    record.flush()


def _end_with_the_starter() -> None:
    """End this process when its standard input ends. That happens when the process that started it ends."""
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Run the process. The module describes its exit codes."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    code = 0
    with Path(spec["record"]).open("w", encoding="utf-8") as record:
        _say(record, started_ns=time.monotonic_ns())
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"tcp://{spec['master']}:{spec['port']}",
                rank=spec["rank"],
                world_size=spec["world"],
                timeout=timedelta(seconds=spec["timeout_s"]),
            )
            train(spec, record)
        except RuntimeError as error:
            _say(record, failed_ns=time.monotonic_ns(), error=str(error).splitlines()[0])
            code = GROUP_FAILED
    # A failed group may keep its threads for ever.
    os._exit(code)


if __name__ == "__main__":
    main()
