"""Cluster runs on the twin: the jobs of a scenario, their run and its figures."""
