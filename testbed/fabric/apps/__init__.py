"""Unmodified applications on the fabric's endpoints, through faults; and the packets on the wire."""
