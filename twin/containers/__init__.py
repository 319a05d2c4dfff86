"""The twin of containers under CFS bandwidth and memory limits, with demand from traces or from requests."""

from twin.containers.run import simulate

__all__ = ["simulate"]
