"""Period-level and, later, request-level model of containers under CFS bandwidth and memory limits."""

from twin.containers.simulation import simulate

__all__ = ["simulate"]
