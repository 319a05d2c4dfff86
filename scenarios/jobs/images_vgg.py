"""Satellite images by a network like VGG: stacks of 3×3 convolutions, then wide layers."""

from images_cnn import CLASSES, make
from torch import nn
from training import train


def stack(inputs, outputs, count):
    """Return `count` convolutions and a pooling layer that halves the image's side."""
    layers = []
    for index in range(count):
        layers += [nn.Conv2d(inputs if index == 0 else outputs, outputs, 3, padding=1), nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)]


class Net(nn.Module):
    """2.5 million parameters: 10 MB of gradients per step."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(*stack(3, 16, 2), *stack(16, 32, 2), *stack(32, 64, 2))
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 1024),
            nn.ReLU(),
            nn.Linear(1024, 1024),
            nn.ReLU(),
            nn.Linear(1024, CLASSES),
        )
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images):
        return self.head(self.features(images))


if __name__ == "__main__":
    train(Net, make, batch=16, rate=5e-4)
