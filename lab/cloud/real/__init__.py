"""Real runs of the shipped jobs on emulated instance types."""
