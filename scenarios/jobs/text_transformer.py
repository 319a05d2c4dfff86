"""Reviews, good or bad, by a small Transformer encoder (as IMDB with BERT): some words have a tone."""

import torch
from torch import nn
from training import train

WORDS, LENGTH, CLASSES = 5_000, 40, 2
TELLING = 50


class Net(nn.Module):
    """0.9 million parameters: two layers of width 128."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 128)
        self.position = nn.Parameter(torch.zeros(LENGTH, 128))
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, words):
        return self.head(self.encoder(self.embedding(words) + self.position).mean(dim=1))


def make(count, generator):
    labels = torch.randint(CLASSES, (count,), generator=generator)
    words = torch.randint(CLASSES * TELLING, WORDS, (count, LENGTH), generator=generator)
    telling = torch.rand((count, LENGTH), generator=generator) < 0.15
    of_class = torch.randint(TELLING, (count, LENGTH), generator=generator) * CLASSES + labels[:, None]
    return torch.where(telling, of_class, words), labels


if __name__ == "__main__":
    train(Net, make, batch=16, rate=1e-3)
