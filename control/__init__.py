"""Policies that decide. No clock, no I/O, no randomness: the twin and the testbed run the same objects."""
