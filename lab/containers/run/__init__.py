"""Container runs on the twin, and their tables."""
