"""Time and cost of a job on a cluster, from its local run and the types of a catalogue."""
