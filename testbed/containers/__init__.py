"""Real cgroups: the drivers of v1 and v2, and the recorder."""
