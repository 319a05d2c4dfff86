"""The fabric's calibration file, and how it is measured on this machine."""
