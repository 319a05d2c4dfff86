"""Carry out decisions on real Linux machines. Everything that it makes carries its mark."""
