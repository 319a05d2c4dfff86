"""The twin of clusters beside real training jobs."""
