"""Pallas kernels: cut out of a function, and compiled alone for the VMEM they use."""
