"""What Escra's own controller and agents cost: bytes on the wire and CPU, with pretended containers."""
