"""Scenarios on this machine: the same questions as the twin's, carried out by real containers."""
