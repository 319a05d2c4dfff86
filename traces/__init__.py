"""Trace schemas, readers of public formats, and recordings. Of our packages it imports twinbed only."""
