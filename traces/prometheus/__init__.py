"""Turns Prometheus' series of containers into a usage trace and the containers' settings."""
