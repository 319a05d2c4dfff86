"""Load: an open-loop generator of requests in a process of its own, and stress containers that follow
arrays."""
