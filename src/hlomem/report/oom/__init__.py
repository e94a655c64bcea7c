"""Out-of-memory messages, read and explained."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
