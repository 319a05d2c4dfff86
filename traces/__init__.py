"""Trace schemas, readers of public formats, our own recordings. Imports nothing of ours but the leaf."""
