"""Questions about the fabric: scenarios, their runs on the twin, and what the reference figures say."""
