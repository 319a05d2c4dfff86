"""Requests through service graphs: open-loop arrivals, calls, processor sharing under CFS bandwidth."""
