"""Programs that need less memory: orders, rematerialization, loops, offload."""
