"""The checker of memory plans, independent of the planner; `verify.verify` is its entry point."""
