"""Decisions: which value lies in which allocation, and where in it."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
