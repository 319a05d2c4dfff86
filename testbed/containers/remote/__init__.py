"""Containers on several hosts: a controller that decides, and agents that carry its decisions out."""
