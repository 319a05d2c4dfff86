"""Period-level and, later, request-level model of containers under CFS bandwidth and memory limits."""
