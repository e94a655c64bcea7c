"""What a dump means: reports as data, on screens and as a page."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
