"""How machines differ: one home for the numbers, chips, memory spaces and rules of each."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
