"""Where the time of a distributed training goes, from a few runs that differ in one thing each."""
