"""Decisions: the allocation and offset of every value."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
