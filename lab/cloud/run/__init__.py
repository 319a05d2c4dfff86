"""Recommendations and trained predictors."""
