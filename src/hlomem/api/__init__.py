"""The verbs of the Python interface: load, plan, replan, explain."""
