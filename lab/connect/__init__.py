"""Connections to other systems: reading their data. Not for: interpreting it (traces)."""
