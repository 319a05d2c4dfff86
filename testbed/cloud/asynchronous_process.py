"""One process of an asynchronous training: `python asynchronous_process.py`, rank 0 is the parameter server.

For: asynchronous.py, which starts the processes. Not for: training a good model. Source: the parameter server
of Li et al. (OSDI 2014) without a bound on staleness. Each worker forms a gloo group with the server, so a
worker that dies or joins does not affect the others. The server has a thread for each worker. In turn, it
sends the parameters, receives a gradient and applies it.

The server reads $TWINBED_STEPS/cluster.json, which has the batch of each worker that may train. The other
workers wait. It appends the time (CLOCK_MONOTONIC, ns), rank and loss of each push to `pushes`. A worker
appends to `RANK.iterations` the times at which it had the parameters, the gradient and the next parameters.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, TCPStore
from torch.nn.utils import parameters_to_vector, vector_to_parameters

INPUTS, HIDDEN, CLASSES = 64, 3300, 10
RATE = 0.02
"""Learning rate."""
PUSH, ITERATION = struct.Struct("<qqd"), struct.Struct("<qqq")
_FOREVER = timedelta(days=1)
_LOOK_S = 0.02


def network() -> nn.Module:
    """Return the model, which is the same in every process. A push of its gradient takes one megabyte."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def store(*, serve: bool = False) -> Any:
    """Return a new connection to the store through which the processes meet."""
    port = int(os.environ["MASTER_PORT"])
    return TCPStore(os.environ["MASTER_ADDR"], port, None, serve, _FOREVER, wait_for_workers=False)


def pair(meeting: Any, number: int, rank: int) -> Any:
    """Return the group of the server (rank 0) and the worker that joined with this number (rank 1)."""
    return ProcessGroupGloo(PrefixStore(f"pair-{number}", meeting), rank, 2, _FOREVER)


class Server:
    """The parameters, and the workers that may train on them."""

    def __init__(self, folder: Path) -> None:
        self._parameters = parameters_to_vector(network().parameters()).detach().clone()
        self._lock = threading.Lock()
        self._orders = folder / "cluster.json"
        self._batches: dict[str, int] = {}
        self._pushes: BinaryIO = (folder / "pushes").open("ab", buffering=0)

    def run(self) -> None:
        """Serve all workers that join, until the process is ended."""
        meeting, served = store(serve=True), 0
        while True:
            while served < meeting.add("joined", 0):
                served += 1
                threading.Thread(target=self._serve, args=(served,), daemon=True).start()
            with suppress(FileNotFoundError):
                self._batches = json.loads(self._orders.read_text())
            time.sleep(_LOOK_S)

    def _serve(self, number: int) -> None:
        meeting = store()
        rank = int(meeting.get(f"rank-{number}"))
        group = pair(meeting, number, 0)
        message = torch.empty(self._parameters.numel() + 1)
        with suppress(RuntimeError):  # the worker is gone
            while True:
                while str(rank) not in self._batches:
                    time.sleep(_LOOK_S)
                with self._lock:
                    message[:-1] = self._parameters
                message[-1] = self._batches.get(str(rank), 1)
                group.send([message], 1, 0).wait()
                group.recv([message], 1, 0).wait()
                with self._lock:
                    self._parameters -= RATE * message[:-1]
                    self._pushes.write(PUSH.pack(time.monotonic_ns(), rank, float(message[-1])))


def work(folder: Path, rank: int) -> None:
    """Train as a worker, until the process is ended."""
    model, meeting = network(), store()
    number = meeting.add("joining", 1)
    meeting.set(f"rank-{number}", str(rank))
    meeting.add("joined", 1)
    group = pair(meeting, number, 1)
    message = torch.empty(sum(part.numel() for part in model.parameters()) + 1)
    chance = torch.Generator().manual_seed(rank)
    teacher = torch.randn((INPUTS, CLASSES), generator=torch.Generator().manual_seed(1))
    with (folder / f"{rank}.iterations").open("ab", buffering=0) as record:
        group.recv([message], 0, 0).wait()
        while True:
            had_ns = time.monotonic_ns()
            vector_to_parameters(message[:-1], model.parameters())
            samples = torch.randn((int(message[-1]), INPUTS), generator=chance)
            loss = nn.functional.cross_entropy(model(samples), (samples @ teacher).argmax(dim=1))
            parts = torch.autograd.grad(loss, list(model.parameters()))
            message = torch.cat((parameters_to_vector(parts), loss.detach().reshape(1)))
            computed_ns = time.monotonic_ns()
            group.send([message], 0, 0).wait()
            group.recv([message], 0, 0).wait()
            record.write(ITERATION.pack(had_ns, computed_ns, time.monotonic_ns()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, own = Path(os.environ["TWINBED_STEPS"]), int(os.environ["RANK"])
    if own == 0:
        Server(place).run()
    else:
        work(place, own)
