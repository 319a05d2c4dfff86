"""Measures faults on a real fabric of this machine, for calibration and validation."""
