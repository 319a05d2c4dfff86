"""Carries decisions out for real, on Linux: cgroups here; everything it makes carries its mark."""
