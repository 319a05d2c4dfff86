"""Containers of other systems by name: where they are, what they are limited to, and changing that."""
