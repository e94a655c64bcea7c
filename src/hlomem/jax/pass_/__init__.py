"""The pass: put into JAX's compilers, called by them, its answers kept and told."""
