"""The fast path on real hosts. It listens to BFD, steers by its own routing table, and reports."""
