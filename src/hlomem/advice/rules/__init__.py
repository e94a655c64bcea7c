"""One rule per module: each examines a subject and yields advice."""
