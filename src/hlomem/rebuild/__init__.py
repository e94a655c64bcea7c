"""Dump → its program, as far as it tells; `module.py` shows all steps on one screen."""
