"""Shared by every package: errors, source texts, sizes, atomic files."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
