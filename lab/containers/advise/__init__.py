"""What to set for each container: candidates, a rehearsal of each, a verdict, and files to apply."""
