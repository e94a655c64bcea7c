"""Compiles in child processes: a plan is there long before the code is."""
