"""Calibration of the twin and the testbed of clusters: start times, and training speeds of jobs."""
