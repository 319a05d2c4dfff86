"""The twin carries out decisions in virtual time. SimPy keeps the time, NumPy arrays hold the fleet."""
