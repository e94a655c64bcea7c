"""Pallas kernels in the style of public repositories, as factories of `hlomem kernel`.

Every factory takes its block sizes as settings and returns a function and its arguments.
"""
