"""Trace schemas, readers of public formats, and our own recordings. It imports no other package of ours but
twinbed.
"""
