"""Trace schemas, readers of public formats, and our own recordings. It imports none of our packages except
twinbed."""
