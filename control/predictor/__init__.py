"""Predictors of a training job's time and cost on a cloud configuration. No clock, no I/O."""
