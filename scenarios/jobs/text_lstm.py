"""Reviews, good or bad, by an LSTM (as IMDB): the tone is in the order of two words."""

import torch
from torch import nn
from training import train

WORDS, LENGTH, CLASSES = 5_000, 40, 2


class Net(nn.Module):
    """0.5 million parameters."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 64)
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, words):
        states, _ = self.lstm(self.embedding(words))
        return self.head(states.max(dim=1).values)


def make(count, generator):
    labels = torch.randint(CLASSES, (count,), generator=generator)
    words = torch.randint(2, WORDS, (count, LENGTH), generator=generator)
    at = torch.randint(LENGTH - 1, (count, 3), generator=generator)
    for column in at.T:
        words.scatter_(1, column[:, None], labels[:, None])
        words.scatter_(1, column[:, None] + 1, 1 - labels[:, None])
    return words, labels


if __name__ == "__main__":
    train(Net, make, batch=32, rate=3e-3)
