"""Real training jobs: short local runs of a user's job, and emulated instance types."""
