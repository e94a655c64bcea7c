"""XLA's dumps of a program's memory: their format, as records."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
