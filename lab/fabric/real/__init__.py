"""The fabric measured on this machine: calibration, validation and their pages."""
