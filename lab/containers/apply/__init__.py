"""Applies an advice to running containers: a plan first, then canaries, a watch, and the way back."""
