"""Dump → the program it is of, as far as it tells; `module.py` has the whole in one screen."""
