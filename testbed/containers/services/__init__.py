"""Service graphs as real processes: each container is an HTTP server that burns its handlers' CPU."""
