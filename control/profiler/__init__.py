"""Stalls of a distributed training, computed from a few runs that differ in one condition each."""
