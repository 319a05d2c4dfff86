"""Training jobs run for real: short local runs of a user's job, and emulated instance types."""
