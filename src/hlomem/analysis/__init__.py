"""Facts about a program; offsets are decided in `assign`."""
