"""A factory traced again with another value at one place of its source, to see what changes.

That tells which line decides a sharding, however it is written: by a table, a default, a rule, a
number. Nothing is compiled, and no file is written.
"""
