"""Runs containers on this machine: the executor of a container's life, and the local control loop."""
