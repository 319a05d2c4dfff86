"""The fabric twin beside the real fabric."""
