"""Service graphs as real processes: each container a small HTTP server that burns the CPU it is told to."""
