"""The cost of Escra's own controller and agents: bytes on the wire and CPU, with pretended containers."""
