"""The BPF programs that watch containers and send tunnelled frames, and the modules that compile and load
these programs."""
