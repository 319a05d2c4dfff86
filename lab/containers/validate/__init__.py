"""Comparison of twin and testbed: the compared quantities, the rule for small errors, and pages that show the
result.
"""
