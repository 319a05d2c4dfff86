"""The fast path on real hosts: it listens to BFD, steers by its own routing table, and reports to hosts."""
