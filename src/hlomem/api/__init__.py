"""The functions of the Python interface: load, plan, replan, explain."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
