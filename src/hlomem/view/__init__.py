"""A dump, joined: every value with its place, its life and its instruction; nothing is judged."""
