"""Prometheus metrics of the programs that run for long: their table, and the port at which they are read."""
