"""The memory of a whole job: programs, the arrays between them, and the allocator under both."""
