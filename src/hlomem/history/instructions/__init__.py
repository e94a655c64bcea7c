"""The order of the instructions in a computation's list."""
