"""Performance figures, each a ratio against a named baseline measured in the same run."""
