"""The recorder: runs commands in separate cgroups and records their use."""
