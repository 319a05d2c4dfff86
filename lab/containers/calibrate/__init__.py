"""Measures this machine through the testbed's drivers, for the calibration that the twin reads."""
