"""The reconciler decides which tunnel rules the kernel should have, given what routing wrote there."""
