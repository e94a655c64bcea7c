"""Dump → the program it is of, as far as the dump tells. `module.py` has the whole in one screen."""
