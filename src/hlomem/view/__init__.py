"""A dump, joined: every value with its place, its life and its instruction, judged by nobody."""
