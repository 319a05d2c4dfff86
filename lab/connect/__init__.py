"""Connects to other people's systems: reads what they have. Not for: what it means (traces)."""
