"""The fast path for real: it listens to BFD on the uplinks, steers by its own routing table, and reports to
hosts.
"""
