"""News in four classes by a bag of words (as AG News): each class has words that it prefers."""

import torch
from torch import nn
from training import train

WORDS, LENGTH, CLASSES = 20_000, 60, 4


class Net(nn.Module):
    """1.3 million parameters, nearly all of them in the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(WORDS, 64)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, words):
        return self.head(self.embedding(words))


def make(count, generator):
    labels = torch.randint(CLASSES, (count,), generator=generator)
    words = torch.randint(WORDS, (count, LENGTH), generator=generator)
    telling = torch.rand((count, LENGTH), generator=generator) < 0.2
    of_class = torch.randint(50, (count, LENGTH), generator=generator) * CLASSES + labels[:, None]
    return torch.where(telling, of_class, words), labels


if __name__ == "__main__":
    train(Net, make, batch=64, rate=5e-3)
