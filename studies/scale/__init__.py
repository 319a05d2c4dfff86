"""Sweeps beyond one machine: is every run there exactly once, whatever dies, and what does a unit cost?"""
