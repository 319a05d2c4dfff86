"""Runs on a market of emulated machines, with a real training job."""
