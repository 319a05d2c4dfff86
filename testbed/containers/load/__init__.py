"""The client, an open-loop load generator in a process of its own; and stress containers that follow
arrays."""
