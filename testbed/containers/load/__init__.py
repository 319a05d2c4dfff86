"""The client: an open-loop load generator in a process of its own."""
