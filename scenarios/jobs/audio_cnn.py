"""Spoken words, one of eight, by a convolutional network on the waveform (as YESNO): tones in noise."""

import math

import torch
from torch import nn
from training import train

SAMPLES, CLASSES = 4_000, 8


class Net(nn.Module):
    """0.2 million parameters: four convolutions over time."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, 32, 80, stride=8),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(32, 64, 9, padding=4),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(64, 128, 9, padding=4),
            nn.ReLU(),
            nn.Conv1d(128, 128, 5, padding=2),
            nn.ReLU(),
        )
        self.head = nn.Linear(128, CLASSES)

    def forward(self, sound):
        return self.head(self.features(sound).mean(dim=-1))


def make(count, generator):
    labels = torch.randint(CLASSES, (count,), generator=generator)
    time = torch.arange(SAMPLES) / 8_000
    phase = 2 * math.pi * torch.rand((count, 1), generator=generator)
    pitch = 200 * 1.3 ** labels[:, None]
    sound = torch.sin(2 * math.pi * pitch * time + phase)
    return (sound + torch.randn((count, SAMPLES), generator=generator))[:, None], labels


if __name__ == "__main__":
    train(Net, make, batch=16, rate=3e-3)
