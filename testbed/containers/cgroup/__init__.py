"""The cgroup drivers of v1 and v2, their OOM traps, and what they tell: period records."""
