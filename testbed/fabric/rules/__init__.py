"""Tunnel rules in the kernel: two ways to carry out what a controller asks for, behind one port."""
