"""Facts derived from a program; nothing here decides where anything lies."""
