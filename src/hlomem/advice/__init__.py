"""Changes that would reduce a program's memory, evaluated by the planner."""
