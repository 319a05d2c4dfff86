"""Decides, and nothing else: no clock, no I/O, no randomness; the same object serves both backends."""
