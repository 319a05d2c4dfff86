"""Advice: requests and limits for containers from their history. Pure functions; who asks is in lab."""
