"""Service graphs as real processes: each container is a small HTTP server that burns the CPU of its
handlers.
"""
