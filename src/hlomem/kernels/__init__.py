"""Kernels: the VMEM that their blocks and scratch take, and which block sizes fit; no JAX."""
