"""Orders of instructions: which one XLA's schedulers choose, and which one needs less memory."""
