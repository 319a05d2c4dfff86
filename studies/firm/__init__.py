"""Trains Firm's classifier and actor in the twin, on applications that no results page judges."""
