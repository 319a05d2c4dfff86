"""Readers of public trace formats, one module per source."""
