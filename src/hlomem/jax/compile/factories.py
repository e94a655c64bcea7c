"""Factories: `pkg.module:factory` and its settings → a program to compile.

A factory is called with the settings of the command line, and with the target's `devices` where it
has a parameter of that name. It returns

- `(function, arguments)` or `(function, arguments, keywords)`: a function, jitted or not, and what
  it is to be called with, arrays or `jax.ShapeDtypeStruct`s; what has no sharding goes where
  jax.jit or the other arguments say, or else to the target's first device; or
- a `jax.stages.Lowered` or `Traced`, or a wrapper of one, as nnx.jit and eqx.filter_jit return; a
  wrapper may have `compiler_options`, and as `command` the line its own stack is started by.

A setting `mesh`, the sizes of axes by name, is handed to a factory without such a parameter axis by
axis.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from hlomem.base.errors import CommandError
from hlomem.base.source import visible
from hlomem.jax.compile.programs import is_placed_by_jit, jitted_with, place_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hlomem.jax.target_kinds import Target

_DEVICES = "devices"
_MESH = "mesh"
_FORMS = "(function, arguments), (function, arguments, keywords) or a jax.stages.Lowered"


class FactoryProgram(NamedTuple):
    """The program a factory has made."""

    lowered: Any
    jaxpr: Any
    """None where the factory lowered it itself."""
    compiler_options: Mapping[str, Any] = {}
    command: str = ""
    """The command line by which the factory's own stack makes the same program."""
    function: Any = None
    """The function that was lowered; None where the factory lowered it itself."""
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = MappingProxyType({})


def find_factory(spec: str) -> Callable[..., Any]:
    """The factory `pkg.module:name`, or `path/to/file.py:name`; errors of its import pass."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        problem = f"`{visible(spec)}` names no factory: give module:function, as in"
        raise CommandError(f"{problem} my_package.train:make_step or train.py:make_step")
    found: Any = import_place(place)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [key for key, value in vars(found).items() if inspect.isfunction(value)]
            hint = f"; its functions are {', '.join(known[:10])}" if known else ""
            raise CommandError(f"`{visible(place)}` has no `{visible(part)}`{visible(hint)}")
        found = getattr(found, part)
    if not callable(found):
        raise CommandError(f"`{visible(spec)}` is not a function, but a {type(found).__name__}")
    factory: Callable[..., Any] = found
    return factory


def import_place(place: str) -> Any:
    """The module of a factory: an importable one, or a file."""
    return _import_file(Path(place)) if place.endswith(".py") else _import_module(place)


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise CommandError(f"{visible(str(path))}: no such file")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            problem = f"no module `{visible(error.name)}` here or on PYTHONPATH"
            raise CommandError(f"`{visible(name)}` cannot be imported: {problem}") from error
        raise


def make_program(
    factory: Callable[..., Any],
    settings: Mapping[str, Any],
    target: Target,
    jit: Mapping[str, Any] | None = None,
    tracing: Callable[[], AbstractContextManager[None]] = nullcontext,
    reshard: Callable[[Any, Any, Any], tuple[Any, Any, Any]] | None = None,
) -> FactoryProgram:
    """The program a factory makes with these settings, for a target.

    `jit` has options of jax.jit for a function that the factory did not jit. `tracing` is entered
    while the function is traced, by the factory where that lowers it. `reshard` may replace
    the function and the arguments of the factory.
    """
    made = _made_by(factory, settings, target)
    stages = import_module("jax").stages
    options = getattr(made, "compiler_options", None) or {}
    command = str(getattr(made, "command", ""))
    made = getattr(made, "lowered", made)
    if isinstance(made, stages.Lowered):
        return FactoryProgram(made, None, options, command)
    if isinstance(made, stages.Traced):
        return FactoryProgram(made.lower(), made.jaxpr)
    function, arguments, keywords = _called(made)
    if reshard is not None:
        function, arguments, keywords = reshard(function, arguments, keywords)
    with tracing():
        program = _lower(function, arguments, keywords, target, jit or {})
    return program._replace(function=function, arguments=tuple(arguments), keywords=keywords)


class UntracedProgram(NamedTuple):
    """The program a factory has made."""

    traced: Any
    """None, unless the factory traced it itself."""
    function: Any = None
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = MappingProxyType({})

    def trace(self, target: Target) -> Any:
        """The program, traced for a target."""
        if self.traced is not None:
            return self.traced
        placed, named, options = place_for(
            self.arguments,
            dict(self.keywords),
            target,
            is_placed=is_placed_by_jit(self.function),
        )
        return jitted_with(self.function, options).trace(*placed, **named)


def trace_program(factory: Callable[..., Any], settings: Mapping[str, Any], target: Target) -> Any:
    """The jaxpr of the program a factory makes; it is traced, and not lowered."""
    return untraced_program(factory, settings, target).trace(target).jaxpr


def untraced_program(
    factory: Callable[..., Any], settings: Mapping[str, Any], target: Target
) -> UntracedProgram:
    """The program a factory makes, before it is traced."""
    made = _made_by(factory, settings, target)
    made = getattr(made, "lowered", made)
    if isinstance(made, import_module("jax").stages.Lowered):
        raise CommandError(
            "the factory returned a Lowered, which cannot be traced again: return"
            " (function, arguments)"
        )
    if isinstance(made, import_module("jax").stages.Traced):
        return UntracedProgram(made)
    return UntracedProgram(None, *_called(made))


def _made_by(factory: Callable[..., Any], settings: Mapping[str, Any], target: Target) -> Any:
    return factory(**_arguments_of(factory, settings, target))


def _called(made: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function, arguments and keywords that a factory returned."""
    if not isinstance(made, tuple | list) or not 2 <= len(made) <= 3 or not callable(made[0]):
        raise CommandError(f"the factory returned a `{type(made).__name__}` instead of {_FORMS}")
    function, arguments, *rest = made
    keywords = rest[0] if rest else {}
    if not isinstance(arguments, tuple | list) or not isinstance(keywords, dict):
        kinds = f"a `{type(arguments).__name__}` and a `{type(keywords).__name__}`"
        problem = "the factory's arguments are to be a tuple, its keywords a dictionary"
        raise CommandError(f"{problem}: they are {kinds}")
    return function, tuple(arguments), keywords


def _lower(
    function: Any, arguments: Any, keywords: Any, target: Target, jit: Mapping[str, Any]
) -> FactoryProgram:
    placed, named, options = place_for(
        arguments, keywords, target, is_placed=is_placed_by_jit(function)
    )
    if jit and hasattr(function, "lower"):
        raise CommandError(f"the factory's function is jitted already, without {', '.join(jit)}")
    jitted = jitted_with(function, {**options, **jit})
    if not hasattr(jitted, "trace"):  # another library's jit
        lowered = jitted.lower(*placed, **named)
        return FactoryProgram(getattr(lowered, "lowered", lowered), None)
    traced = jitted.trace(*placed, **named)
    return FactoryProgram(traced.lower(), traced.jaxpr)


def _arguments_of(
    factory: Callable[..., Any], settings: Mapping[str, Any], target: Target
) -> dict[str, Any]:
    parameters = inspect.signature(factory).parameters
    mesh = settings.get(_MESH)
    if isinstance(mesh, dict) and _MESH not in parameters:
        settings = {name: value for name, value in settings.items() if name != _MESH} | mesh
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = [name for name in parameters if name != _DEVICES]
    for name in settings:
        if name not in parameters and not takes_any:
            there = f"its settings are {', '.join(known)}" if known else "it has none"
            raise CommandError(f"the factory has no setting `{visible(name)}`; {there}")
    given = dict(settings)
    if _DEVICES in parameters and _DEVICES not in given:
        given[_DEVICES] = target.devices
    return given
