"""What a job takes and costs on a cluster, from its local run and the types of a catalogue."""
