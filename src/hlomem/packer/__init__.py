"""Offsets for buffers with lifetimes: small heaps, and proofs that none is smaller.

Knows no XLA: buffers go in, offsets come out. `hlomem.api.pack` adds XLA's own heap.
"""
