"""The BPF programs that watch containers and send tunnelled frames, and what compiles and loads them."""
