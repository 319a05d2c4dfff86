"""Turns a service graph as text into the request-level twin's workload."""
