"""Unmodified applications on the fabric's endpoints during faults, and their packets on the wire."""
