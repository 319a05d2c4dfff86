"""Fabric runs on the twin: the world of a scenario and what is measured in it."""
