"""Advice: requests and limits for containers, from their history. Pure functions; lab calls them."""
