"""How long a test waits for something that must happen."""

PATIENCE_S = 300.0
"""Longest wait of a test, s. Other programs may slow the machine down this much."""
