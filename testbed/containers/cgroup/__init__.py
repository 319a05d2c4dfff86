"""The cgroup drivers of v1 and v2, their OOM traps, and telemetry: period records."""
