"""Draws `Health`: versions, targets, folders, and the commands that install what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.report.screens.text import Line, wrapped

if TYPE_CHECKING:
    from hlomem.report.data.health import Health, NamedFolder, Package

_BUILD = "HLOMEM_NATIVE=1 pip install --force-reinstall --no-deps --no-binary hlomem hlomem"
_FLAGS = 'XLA_FLAGS="--xla_dump_to=xla_dump --xla_dump_hlo_as_text" python …'


def draw_health(health: Health, width: int) -> list[Line]:
    core = ", ".join(f"{package.name} {package.version or 'missing'}" for package in health.core)
    lines: list[Line] = [
        [(f"hlomem {health.version}", "bold")],
        *wrapped(f"{health.python}; {health.system}", width, "  "),
        *wrapped(core, width, "  "),
        *_kernels(health, width),
        [],
        [("Optional packages", "bold")],
        *(_package(package) for package in health.optional),
        [],
        [("Compiles for", "bold")],
        *_targets(health, width),
        [],
        [("Dumps and caches", "bold")],
    ]
    for place in health.places:
        lines += wrapped(_described(place), width, "  ")
    if not health.places:
        none = "none named by XLA_FLAGS or JAX_COMPILATION_CACHE_DIR; for a dump:"
        lines += [*wrapped(none, width, "  "), [(f"    {_FLAGS}", "cyan")]]
    return lines


def _kernels(health: Health, width: int) -> list[Line]:
    if not health.kernels:
        none = "no native kernels: pure Python; with a C compiler they are built by"
        return [*wrapped(none, width, "  "), [(f"    {_BUILD}", "cyan")]]
    names = ", ".join(module.rpartition("._")[2] for module in health.kernels)
    unused = "" if health.uses_kernels else "; unused, as HLOMEM_PURE is set"
    return wrapped(f"native kernels: {names}{unused}", width, "  ")


def _package(package: Package) -> Line:
    name = f"  {package.name:<18} "
    if package.version:
        return [(name, ""), (f"{package.version:<12} ", "green"), (package.use, "dim")]
    return [(name, ""), (f"{'-':<12} ", ""), (package.use, "dim")]


def _targets(health: Health, width: int) -> list[Line]:
    """The targets that are ready, then the others by install command."""
    by_command: dict[str, list[str]] = {}
    for target in health.targets:
        by_command.setdefault(target.install, []).append(target.name)
    lines: list[Line] = []
    for command in sorted(by_command):
        names = ", ".join(by_command[command])
        if not command:
            lines += wrapped(f"ready: {names}", width, "  ")
        else:
            lines += wrapped(f"not yet: {names}", width, "  ")
            lines.append([(f"    {command}", "cyan")])
    return lines


def _described(place: NamedFolder) -> str:
    where = f"{place.variable}: {visible(place.path)}"
    if place.count is None:
        return f"{where}, does not exist yet"
    return f"{where}, {place.count} found; hlomem show {visible(place.path)}"
