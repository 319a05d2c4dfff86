"""Runs scenarios on either backend and shows what came of them; reads and writes runs, nothing else."""
