"""Trace schemas, readers of public formats, and our own recordings. Of our packages it imports only twinbed."""
