"""A dump → its program, as far as it shows; `module.py` has all steps."""
