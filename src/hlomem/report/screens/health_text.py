"""Draws what `hlomem doctor` found: versions, targets, folders, and what to type for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.source import visible
from hlomem.report.screens.text import wrap

if TYPE_CHECKING:
    from hlomem.report.data.health import Health, Package, Place
    from hlomem.report.screens.text import Line

_BUILD = "HLOMEM_NATIVE=1 pip install --force-reinstall --no-deps --no-binary hlomem hlomem"
_FLAGS = 'XLA_FLAGS="--xla_dump_to=xla_dump --xla_dump_hlo_as_text" python …'


def draw_health(health: Health, width: int) -> list[Line]:
    """The lines of the screen."""
    core = ", ".join(f"{package.name} {package.version or 'missing'}" for package in health.core)
    lines: list[Line] = [
        [(f"hlomem {health.version}", "bold")],
        *_wrapped(f"{visible(health.python)}; {health.system}", width),
        *_wrapped(core, width),
        *_kernels(health, width),
        [],
        [("Beside it", "bold")],
        *(_package(package) for package in health.optional),
        [],
        [("Compiles for", "bold")],
        *_targets(health, width),
        [],
        [("Dumps and caches", "bold")],
    ]
    for place in health.places:
        lines += _wrapped(_said_of(place), width)
    if not health.places:
        lines += _wrapped(
            "none named by XLA_FLAGS or JAX_COMPILATION_CACHE_DIR; for a dump:", width
        )
        lines.append([(f"    {_FLAGS}", "cyan")])
    return lines


def _wrapped(text: str, width: int) -> list[Line]:
    return [[(line, "")] for line in wrap(text, width, "  ")]


def _kernels(health: Health, width: int) -> list[Line]:
    """The native kernels by name, or what to type to have them."""
    if not health.kernels:
        lines = _wrapped(
            "no native kernels: Python does all; with a C compiler they are built by", width
        )
        return [*lines, [(f"    {_BUILD}", "cyan")]]
    names = ", ".join(module.rpartition("._")[2] for module in health.kernels)
    unused = "" if health.uses_kernels else "; unused, as HLOMEM_PURE is set"
    return _wrapped(f"native kernels: {names}{unused}", width)


def _package(package: Package) -> Line:
    name = f"  {package.name:<18} "
    if package.version:
        return [(name, ""), (f"{package.version:<12} ", "green"), (package.use, "dim")]
    return [(name, ""), (f"{'-':<12} ", ""), (package.use, "dim")]


def _targets(health: Health, width: int) -> list[Line]:
    """Those that are ready, then those that are not by the command that makes them so."""
    by_command: dict[str, list[str]] = {}
    for target in health.targets:
        by_command.setdefault(target.install, []).append(target.name)
    lines: list[Line] = []
    for command in sorted(by_command):
        names = ", ".join(by_command[command])
        if not command:
            lines += _wrapped(f"ready: {names}", width)
        else:
            lines += _wrapped(f"not yet: {names}", width)
            lines.append([(f"    {command}", "cyan")])
    return lines


def _said_of(place: Place) -> str:
    where = f"{place.variable}: {visible(place.path)}"
    if place.count is None:
        return f"{where}, not there yet"
    return f"{where}, {place.count} found; hlomem show {visible(place.path)}"
