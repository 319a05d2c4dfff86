"""docs/results/advice.md: advice made on the first half of public histories, replayed on the second."""
