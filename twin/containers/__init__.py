"""The twin of containers under CFS bandwidth and memory limits, with demand from traces or from requests."""
