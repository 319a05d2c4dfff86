"""Deadlines on spot machines: policies beside the optimum, on public availability."""
