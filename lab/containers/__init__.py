"""The container pillar: inputs, runs on both backends, metrics, calibration and validation."""
