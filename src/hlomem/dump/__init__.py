"""XLA's memory dumps as records: readers and writers of every file."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
