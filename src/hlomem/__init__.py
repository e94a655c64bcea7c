"""Reads, plans, proves and explains where XLA puts every tensor of a program."""

__version__ = "0.1.0.dev0"
