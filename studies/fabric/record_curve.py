"""`python -m studies.fabric.record_curve`: trains a small CNN once and writes its accuracy by epoch.

For: making training_curve.csv, which the twin only stretches in time. Not for: anything at run time; it needs
torch (`pip install twinbed[cloud]`) and about two minutes of one core. The images are made here, so nothing
is downloaded: ten classes, each a smooth random pattern that is shifted, scaled and buried in noise. It
stands for no published training; ResNet101 on CIFAR-10 has another curve.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

from lab.fabric.run.curve import PATH
from twin.fabric.model import Floats, Whole

EPOCHS, BATCH = 150, 128
CLASSES, SIZE = 10, 16
TRAINING, TEST = 4000, 2000
NOISE, SHIFT = 2.5, 3
SEED = 1


def images(count: int, patterns: Floats, rng: np.random.Generator) -> tuple[Floats, Whole]:
    """(float64[count, 1, SIZE, SIZE], int64[count] classes) with patterns float64[CLASSES, SIZE, SIZE]."""
    label = rng.integers(CLASSES, size=count)
    shifts = rng.integers(-SHIFT, SHIFT + 1, size=(count, 2))
    shifted = [
        np.roll(patterns[each], tuple(shift), axis=(0, 1)) for each, shift in zip(label, shifts, strict=True)
    ]
    scaled = np.stack(shifted) * rng.uniform(0.5, 1.5, (count, 1, 1))
    return (scaled + NOISE * rng.standard_normal(scaled.shape))[:, None], label


def smooth_patterns(rng: np.random.Generator) -> Floats:
    """float64[CLASSES, SIZE, SIZE]: random low frequencies, of unit variance."""
    spectrum = np.fft.fft2(rng.standard_normal((CLASSES, SIZE, SIZE)))
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(SIZE), np.fft.fftfreq(SIZE)))
    found = np.fft.ifft2(spectrum * (frequency < 0.2)).real
    return np.asarray(found / found.std(axis=(1, 2), keepdims=True))


def train(epochs: int) -> list[float]:
    """Test accuracy before the first epoch and after each."""
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

    found = [accuracy()]
    for _ in range(epochs):
        model.train()
        for rows in torch.split(torch.randperm(len(inputs)), BATCH):
            optimiser.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows]))
            optimiser.step()
        schedule.step()
        found.append(accuracy())
    return found


def _model(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(16 * (SIZE // 4) ** 2, CLASSES),
    )


def main(path: Path = PATH, epochs: int = EPOCHS) -> int:
    """Trains and writes the CSV: epoch, accuracy."""
    accuracies = train(epochs)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("epoch", "accuracy"))
        rows.writerows((epoch, f"{value:.4f}") for epoch, value in enumerate(accuracies))
    return 0


if __name__ == "__main__":
    sys.exit(main())
