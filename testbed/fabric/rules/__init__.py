"""Tunnel rules in the kernel. Two appliers carry out a controller's rule changes, behind one port."""
