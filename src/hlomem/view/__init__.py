"""Dumps joined by value and instruction, and the program they show."""
