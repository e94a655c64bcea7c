"""The differences between machines, as data: sizes, chips, memory spaces, releases."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
