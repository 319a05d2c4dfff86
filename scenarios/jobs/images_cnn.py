"""Satellite images in ten classes by a small convolutional network (as EuroSAT): patterns in noise."""

import torch
from torch import nn
from training import train

SIDE, CLASSES = 32, 10


class Net(nn.Module):
    """0.3 million parameters."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 8 * 8, 128), nn.ReLU(), nn.Linear(128, CLASSES)
        )

    def forward(self, images):
        return self.head(self.features(images))


def make(count, generator):
    patterns = torch.randn((CLASSES, 3, SIDE, SIDE), generator=torch.Generator().manual_seed(7))
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return patterns[labels] + 2 * torch.randn((count, 3, SIDE, SIDE), generator=generator), labels


if __name__ == "__main__":
    train(Net, make, batch=32, rate=1e-3)
