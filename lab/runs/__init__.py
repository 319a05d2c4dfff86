"""Stored runs: their identity, files, tables, comparison and report."""
