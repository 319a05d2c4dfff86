"""What the twin and the testbed of clusters know of a machine: what starts cost, how fast jobs train."""
