"""Our own data plane of BFD: a compiled process behind bfdd's socket that handles packets and timers."""
