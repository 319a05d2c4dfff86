"""Our own data plane of BFD: a compiled process behind bfdd's socket, which does packets and timers."""
