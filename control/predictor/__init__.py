"""Predictors of what a training job takes on a cloud configuration. No clock, no I/O."""
