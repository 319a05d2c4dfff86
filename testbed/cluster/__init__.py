"""Carry out a scheduler's decisions on real training jobs. A CPU quota stands for a GPU, and a signal
preempts a job."""
