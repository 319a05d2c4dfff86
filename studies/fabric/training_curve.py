"""Trains a small CNN once and writes its accuracy by epoch: `python -m studies training-curve`.

For: making lab/fabric/run/training_curve.csv, which the twin only stretches in time. Not for: anything at run
time. It needs torch (`pip install twinbed[cloud]`) and about two minutes of one core. The images are made
here, so nothing is downloaded: ten classes, each a smooth random pattern that is shifted, scaled and covered
with noise. The curve is that of no published training; ResNet101 on CIFAR-10 has another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lab.fabric.run.training import CURVE
from studies import harness
from studies.harness import Asked
from twin.fabric.model import Floats, Whole

EPOCHS, BATCH = 150, 128
CLASSES, SIZE = 10, 16
TRAINING, TEST = 4000, 2000
NOISE, SHIFT = 2.5, 3
SEED = 1


def images(count: int, patterns: Floats, rng: np.random.Generator) -> tuple[Floats, Whole]:
    """Return float64[count, 1, SIZE, SIZE] and int64[count] classes of patterns[CLASSES, SIZE, SIZE]."""
    label = rng.integers(CLASSES, size=count)
    shifts = rng.integers(-SHIFT, SHIFT + 1, size=(count, 2))
    shifted = [
        np.roll(patterns[index], tuple(shift), axis=(0, 1))
        for index, shift in zip(label, shifts, strict=True)
    ]
    scaled = np.stack(shifted) * rng.uniform(0.5, 1.5, (count, 1, 1))
    return (scaled + NOISE * rng.standard_normal(scaled.shape))[:, None], label


def smooth_patterns(rng: np.random.Generator) -> Floats:
    """Return random low frequencies of unit variance, float64[CLASSES, SIZE, SIZE]."""
    spectrum = np.fft.fft2(rng.standard_normal((CLASSES, SIZE, SIZE)))
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(SIZE), np.fft.fftfreq(SIZE)))
    patterns = np.fft.ifft2(spectrum * (frequency < 0.2)).real
    return np.asarray(patterns / patterns.std(axis=(1, 2), keepdims=True))


def train(epochs: int) -> list[float]:
    """Return the test accuracy before the first epoch and after every epoch."""
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    patterns = smooth_patterns(rng)
    inputs, labels = map(torch.tensor, images(TRAINING, patterns, rng))
    inputs = inputs.float()
    test_inputs, test_labels = map(torch.tensor, images(TEST, patterns, rng))
    test_inputs = test_inputs.float()
    model = _model(torch.nn)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)

    def accuracy() -> float:
        model.eval()
        with torch.no_grad():
            return float((model(test_inputs).argmax(1) == test_labels).float().mean())

    accuracies = [accuracy()]
    for _ in range(epochs):
        model.train()
        for rows in torch.split(torch.randperm(len(inputs)), BATCH):
            optimiser.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows]))
            optimiser.step()
        schedule.step()
        accuracies.append(accuracy())
    return accuracies


def _model(nn: Any) -> Any:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(16 * (SIZE // 4) ** 2, CLASSES)),
    )


def make(_: Asked) -> int:
    """Train, and write the CSV: epoch, accuracy."""
    rows = (f"{epoch},{accuracy:.4f}\r\n" for epoch, accuracy in enumerate(train(EPOCHS)))
    harness.write(CURVE, "epoch,accuracy\r\n" + "".join(rows))
    return 0
