"""Advice on each container's settings: candidates, a rehearsal of each, a verdict, and files to apply."""
