"""Cluster runs on this machine: real training jobs under a scheduler."""
