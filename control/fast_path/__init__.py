"""The fast path stops using a dead uplink at once and lets BGP confirm."""
