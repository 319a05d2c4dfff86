"""Trace schemas, readers of public formats, and recordings. This package imports no other package of ours but
twinbed."""
