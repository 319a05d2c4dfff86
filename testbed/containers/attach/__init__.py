"""Containers of other systems by name: finding them, reading their limits, and changing these."""
