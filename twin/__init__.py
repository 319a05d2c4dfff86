"""Carries decisions out in virtual time: SimPy owns the time, NumPy arrays own the fleet."""
