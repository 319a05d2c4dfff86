"""Checks code of a user's own against the promises of its port, on generated histories and on a backend."""
