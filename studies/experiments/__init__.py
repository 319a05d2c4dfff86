"""The reference experiments E1-E8: what the source reports, what we get, and the verdict."""
