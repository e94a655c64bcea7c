"""What XLA writes about a program's memory: its format, as records."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
