"""The functions of the Python interface: load, plan, replan, explain."""

from hlomem.base.notebook import draw_with
from hlomem.base.submodules import find_submodules

__getattr__ = find_submodules(__name__)

draw_with("Dump", "hlomem.report.page.notebook", "format_frame")
