"""Rematerialization across loops: stacks that need not be kept."""
