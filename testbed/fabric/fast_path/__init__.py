"""The fast path for real: hears BFD on each uplink, steers by a table of its own, tells the other hosts."""
