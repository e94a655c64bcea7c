"""Orders of a program's instructions that need less memory."""
