"""A data-parallel training job, one process of it: PyTorch DDP over gloo on images that it makes itself.

For: being recorded (ddp_training.yaml): loading, epochs of training, evaluation and a checkpoint after each.
Not for: a good model. Rank and world size come from RANK and WORLD_SIZE, the master's address from
TWINBED_ADDRESS_MASTER; rank 0 is the master: it trains too, evaluates, and writes checkpoints.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
SIDE = 32
CHUNK = 500


class Net(nn.Module):
    """A convolutional network of about 1.1 million parameters: 4.5 MB of gradients per step."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 64, 256), nn.ReLU(), nn.Linear(256, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, float[batch, CLASSES], of images float[batch, 3, SIDE, SIDE]."""
        logits: Tensor = self.head(self.features(images))
        return logits


def load(count: int, seed: int) -> TensorDataset:
    """Images of CLASSES noisy patterns, made a chunk at a time as a reader of files would bring them."""
    patterns = torch.randn(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    images, labels = [], []
    for _ in range(0, count, CHUNK):
        label = torch.randint(CLASSES, (CHUNK,), generator=generator)
        noise = torch.randn(CHUNK, 3, SIDE, SIDE, generator=generator)
        images.append(nn.functional.avg_pool2d(patterns[label] + 8 * noise, 3, stride=1, padding=1))
        labels.append(label)
    return TensorDataset(torch.cat(images), torch.cat(labels))


def train_epoch(
    model: nn.Module, data: DataLoader[tuple[Tensor, ...]], optimizer: torch.optim.Optimizer
) -> float:
    """One pass over this rank's shard; the mean loss of its last batch."""
    model.train()
    loss = torch.zeros(())
    for images, labels in data:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def evaluate(model: nn.Module, data: TensorDataset) -> float:
    """Share of the images that are classified correctly."""
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(data, batch_size=500):
            right += int((model(images).argmax(1) == labels).sum())
    return right / len(data)


def main() -> None:
    """Trains until the time is over, epoch by epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=170, help="start no epoch after this time")
    parser.add_argument("--images", type=int, default=6000, help="per rank and epoch")
    arguments = parser.parse_args()
    began = time.monotonic()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    address = os.environ.get("TWINBED_ADDRESS_MASTER", "127.0.0.1")
    dist.init_process_group("gloo", init_method=f"tcp://{address}:29500", rank=rank, world_size=world)
    train_data, test_data = load(arguments.images, seed=1 + rank), load(4000, seed=1000)
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(train_data, batch_size=64, shuffle=True)
    going = torch.ones(1)
    epoch = 0
    with tempfile.TemporaryDirectory() as folder:
        while going:
            loss = train_epoch(model, loader, optimizer)
            if rank == 0:
                accuracy = evaluate(model.module, test_data)
                torch.save(
                    {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
                    Path(folder) / "last.pt",
                )
                spent_s = time.monotonic() - began
                print(f"epoch {epoch} loss {loss:.3f} accuracy {accuracy:.3f} at {spent_s:.1f} s")
                going[0] = float(spent_s < arguments.seconds)
            # The workers wait here while the master evaluates and writes; it also tells them when to end.
            dist.broadcast(going, 0)
            epoch += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
