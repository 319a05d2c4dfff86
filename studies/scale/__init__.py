"""Sweeps beyond one machine: is every run there exactly once despite faults, and what does a unit cost?"""
