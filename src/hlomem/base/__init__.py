"""The ground everything stands on: errors, sources of text, sizes, files written whole."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
