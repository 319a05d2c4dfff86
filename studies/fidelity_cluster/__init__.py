"""The twin of clusters beside real training jobs and a real Slurm."""
