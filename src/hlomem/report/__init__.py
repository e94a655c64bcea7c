"""Reports on a dump: as data, on screens and as a page."""

from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)
