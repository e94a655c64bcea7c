"""One rule a module: each looks at a subject and yields advice."""
