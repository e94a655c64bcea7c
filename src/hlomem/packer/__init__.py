"""Places for buffers that live at times: small heaps, and proof that they are as small as can be.

Knows no XLA: buffers go in, offsets come out. `hlomem.api.pack` adds XLA's own heap.
"""
