"""Distributed Containers over several hosts: a controller that decides, agents that carry out."""
