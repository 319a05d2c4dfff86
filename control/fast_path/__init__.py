"""The fast path: turns away from a dead uplink at once, and lets BGP confirm."""
