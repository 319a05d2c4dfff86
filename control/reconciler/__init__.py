"""The reconciler: what tunnel rules the kernel should have, from what routing wrote there."""
