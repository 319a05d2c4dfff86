"""The recorder: commands, each in a cgroup of its own, and what they use."""
