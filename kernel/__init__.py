"""The BPF programs and their loader (bcc). Imports nothing of ours."""
