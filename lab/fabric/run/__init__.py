"""Fabric runs on the twin: the world of a scenario and the measurements in it."""
