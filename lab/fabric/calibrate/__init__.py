"""The fabric's calibration file, and its measurement on this machine."""
