"""Runs scenarios on either backend, stores the runs, and shows them."""
