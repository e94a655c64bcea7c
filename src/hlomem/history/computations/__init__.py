"""The order in which the passes of a compiler made the computations of a module."""
