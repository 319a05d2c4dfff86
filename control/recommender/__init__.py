"""Which configuration to take: FC2, CherryPick, Ernest and others behind one interface. No clock, no I/O."""
