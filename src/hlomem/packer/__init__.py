"""Small heaps for buffers with lifetimes, and proofs that none is smaller; independent of XLA."""
