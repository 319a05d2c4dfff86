"""Turns what Prometheus knows of containers into a usage trace and what was in force beside it."""
