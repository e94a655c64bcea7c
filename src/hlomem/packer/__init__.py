"""Offsets for buffers with lifetimes: small heaps, and proofs that none is smaller.

Independent of XLA; `hlomem.api.pack` adds XLA's own heap.
"""
