"""The BPF programs that watch containers, and what builds and loads them. Imports nothing of ours."""
