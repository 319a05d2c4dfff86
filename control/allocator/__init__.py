"""Allocators: who gets how much CPU and memory, and why."""
