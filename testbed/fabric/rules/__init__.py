"""Tunnel rules in the kernel: two ways to carry out a controller's rule changes, behind one port."""
