"""Carries out a scheduler's decisions on real training jobs: GPUs are CPU quotas, preemption is a signal."""
