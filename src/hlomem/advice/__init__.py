"""Changes that would make a program need less memory, each tried by planning it."""
