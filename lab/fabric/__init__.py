"""Questions about the fabric: scenarios, and their runs on the twin and on a real fabric."""
